"""The Ursula dialect: buckets and streams at /{bucket}/{stream}."""
