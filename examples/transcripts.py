"""Tokens of an AI model, as they are made, to whole messages.

Each chat has a stream of tokens. A message is written to `transcripts` when its last token is
there, its tokens put in order, even if they came in several batches.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.pipeline import Pipeline

pipeline = Pipeline("transcripts")
pipeline.source(
    "tokens",
    streams="chats/*/tokens",
    json="message string, role string, number int, token string, last boolean",
)


@pipeline.transform
def messages(tokens: DataFrame) -> DataFrame:
    token = F.struct("number", "token")
    grouped = tokens.groupBy(F.col("stream").alias("chat"), "message").agg(
        F.first("role", ignorenulls=True).alias("role"),
        F.sort_array(F.collect_list(token)).alias("tokens"),
        F.bool_or("last").alias("complete"),
    )
    text = F.array_join(F.transform("tokens", lambda each: each["token"]), "")
    return grouped.filter("complete").select("chat", "message", "role", text.alias("text"))


pipeline.sink("out", messages, stream="transcripts", mode="update")
