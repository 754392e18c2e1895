import faust

app = faust.App("visits", broker="nats://127.0.0.1:4222", topic_partitions=4)
visits = app.topic("page-visits", key_type=str, value_type=str)
counts = app.Table("visit-counts", default=int)


@app.agent(visits)
async def count(stream):
    async for visitor, page in stream.items():
        counts[visitor] += 1
        print(f"{visitor} was here {counts[visitor]} times, last on {page}")
