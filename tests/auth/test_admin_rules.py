"""Who may see the page and `/admin`: keys, sessions, a proxy's word, and requests that foreign pages cause."""

import hashlib
import ipaddress

import pytest

from gateway.auth.admin_access import SESSION_S, AdminRules, AdminSessions, same_origin

A, B = (hashlib.sha256(key).digest() for key in (b"admin-key-a", b"admin-key-b"))
RULES = AdminRules(
    "0.0.0.0",
    [A, B],
    "x-forwarded-user",
    [ipaddress.ip_network(one) for one in ("10.0.0.7", "10.1.0.0/16", "fd00::/8")],
)


def test_a_key_is_known_by_its_number_and_nothing_else_is():
    assert RULES.key_number("admin-key-a") == 1
    assert RULES.key_number("admin-key-b") == 2
    for wrong in ("", "admin-key", "admin-key-a ", "ADMIN-KEY-A", "admin-key-a" * 100, "\udcff", A.hex()):
        assert RULES.key_number(wrong) is None


@pytest.mark.parametrize("peer", ["10.0.0.7", "10.1.2.3", "::ffff:10.0.0.7", "fd00::1", "fd00::1%eth0"])
def test_a_trusted_proxy_vouches(peer: str):
    assert RULES.vouched(peer, "alice") == "alice"
    assert RULES.vouched(peer, "") is None
    assert RULES.vouched(peer, None) is None
    assert RULES._replace(trusted_header=None).vouched(peer, "alice") is None


@pytest.mark.parametrize("peer", ["10.0.0.8", "192.168.0.1", "::1", "127.0.0.1", "", None, "unix"])
def test_nobody_else_does(peer: str | None):
    assert RULES.vouched(peer, "alice") is None


def test_a_session_lasts_twelve_hours_and_ends_with_its_key():
    sessions = AdminSessions(b"s" * 32)
    session = sessions.issue(B, 100.0)
    assert sessions.key_number(session, [A, B], 100.0) == 2
    assert sessions.key_number(session, [B], 100.0 + SESSION_S - 1) == 1
    assert sessions.key_number(session, [A, B], 100.0 + SESSION_S) is None
    assert sessions.key_number(session, [A], 100.0) is None
    assert sessions.key_number(session, [], 100.0) is None
    assert "admin-key" not in session
    assert B.hex() not in session


def test_a_forged_session_is_none():
    sessions, others = AdminSessions(b"s" * 32), AdminSessions(b"t" * 32)
    session = sessions.issue(A, 100.0)
    ends, owner, signature = session.split(".")
    forged = [
        "", ".", "..", "a.b.c", session[:-1], session + "0", f"{int(ends) + 9}.{owner}.{signature}",
        f"{ends}.{'0' * 64}.{signature}", f"{ends}.{owner}.", others.issue(A, 100.0), "\udcff.é.\udcff",
    ]  # fmt: skip
    for one in forged:
        assert sessions.key_number(one, [A, B], 100.0) is None, one


def test_pages_of_other_sites_may_not_act():
    assert same_origin("127.0.0.1:9464", None, None)
    assert same_origin("127.0.0.1:9464", "http://127.0.0.1:9464", "same-origin")
    assert same_origin("admin.example.com", "https://admin.example.com", None)
    for origin in ("http://evil.example", "http://127.0.0.1:8080", "null", "http://127.0.0.1:9464.evil.example"):
        assert not same_origin("127.0.0.1:9464", origin, None)
    for site in ("cross-site", "same-site", "other"):
        assert not same_origin("127.0.0.1:9464", "http://127.0.0.1:9464", site)
        assert not same_origin("127.0.0.1:9464", None, site)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:9464", "127.0.0.1", "localhost:9464", "LOCALHOST", "localhost.", "[::1]:9464", "[::1]", "a.localhost"],
)
def test_this_machines_names_are_known(host: str):
    assert AdminRules("127.0.0.1").knows_host(host)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:9464", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", "", ":", "0"],
)
def test_another_name_is_a_foreign_pages(host: str):
    assert not AdminRules("127.0.0.1").knows_host(host)


def test_a_name_in_the_config_is_known():
    assert AdminRules("Admin.Internal").knows_host("admin.internal:9464")
