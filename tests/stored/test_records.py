"""What one process remembers of stored responses is bounded in number and time."""

from gateway.stored.records import ResponseMemory, StoredResponse

MADE = StoredResponse("team-a", "m", "local")


def test_a_response_is_remembered_for_its_time() -> None:
    memory = ResponseMemory(lifetime_s=10.0)
    memory.put("r", MADE, 100.0)
    assert memory.find("r", 109.9) == MADE
    assert memory.find("r", 110.0) is None
    assert memory.find("other", 100.0) is None


def test_the_oldest_is_forgotten_first() -> None:
    memory = ResponseMemory(most=2)
    for number, name in enumerate("abac"):
        memory.put(name, MADE, float(number))
    assert [memory.find(name, 4.0) is not None for name in "abc"] == [True, False, True]


def test_a_deleted_response_is_forgotten() -> None:
    memory = ResponseMemory()
    memory.put("r", MADE, 0.0)
    memory.forget("r")
    memory.forget("r")
    assert memory.find("r", 1.0) is None
