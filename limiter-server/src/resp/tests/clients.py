"""Calls the service by redis-py. Arguments: port, token. The tests run it."""

import sys

import redis

port, token = int(sys.argv[1]), sys.argv[2]

for protocol in (3, 2):
    client = redis.Redis(port=port, password=token, protocol=protocol, client_name=f"py{protocol}", decode_responses=True)
    assert client.ping() is True
    assert client.client_getname() == f"py{protocol}"
    reply = client.execute_command("RL.CHECK", "search", f"py{protocol}", "acme")
    if protocol == 3:
        assert (reply["allowed"], reply["rule"], reply["limit"], reply["remaining"]) == (True, "search", 2, 1), reply
    else:
        assert reply == [1, 2, 1, 0, 10000], reply
    with client.pipeline(transaction=False) as pipeline:
        for _ in range(3):
            pipeline.execute_command("CL.THROTTLE", f"py{protocol}", 1, 1, 60)
        replies = pipeline.execute()
    assert [reply[0] for reply in replies] == [0, 0, 1], replies
    try:
        client.execute_command("RL.CHECK", "serch", "1")
    except redis.ResponseError as error:
        assert "unknown-rule" in str(error), error
    else:
        raise AssertionError("no error")
    assert client.info()["loading"] == 0
    client.close()

try:
    redis.Redis(port=port, password="x" * 16).ping()
except redis.AuthenticationError:
    pass
else:
    raise AssertionError("a wrong password was accepted")

print("redis-py", redis.__version__)
