"""Lake tables: Delta, Iceberg and Parquet, written and read with pyarrow alone. No Spark here."""
