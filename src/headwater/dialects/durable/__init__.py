"""The Durable Streams protocol at /v1/stream/…"""
