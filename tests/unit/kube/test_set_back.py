"""A watch that was cut off asks first how far the API server is."""

from unit.kube.live import PATH, Start, config_map
from unit.kube.tiny_api import TinyApi, status


def test_a_server_whose_history_was_set_back_is_listed_again_before_it_gets_where_it_was(
    start: Start, server: TinyApi
) -> None:
    """It would take the watch, say nothing until then, and never tell what it did on its way."""
    server.put(f"{PATH}/a", config_map("a"))
    backup = server.version
    reflector, seen = start()
    assert seen.next() == ("ADDED", "a")
    server.put(f"{PATH}/b", config_map("b"))
    assert seen.next() == ("ADDED", "b")
    with server.lock:
        server.remove(f"{PATH}/b", silently=True)
        server.version = backup
    server.end_watches()
    assert seen.next() == ("DELETED", "b")
    assert reflector.reached() == str(backup)


def test_who_may_list_by_name_only_goes_on_where_the_watch_ended(start: Start, server: TinyApi) -> None:
    reflector, seen = start()
    with server.lock:
        server.script.append((403, status(403, "Forbidden"), {}))
        server.end_watches()
    server.wait_for_watch()
    server.put(f"{PATH}/a", config_map("a"))
    assert seen.next() == ("ADDED", "a")
    assert reflector.relists == 1
