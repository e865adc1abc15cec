"""Routes of endpoints: each third party under a prefix of its own, and no collision."""

from __future__ import annotations

import pytest

from framework.errors import PluginError
from framework.plugins.records import Record
from framework.plugins.routes import Route, check_routes, prefix_of


def endpoint(name, owner, first_party=False):
    return Record(
        kind="endpoint",
        name=name,
        distribution=owner,
        version="1",
        value="m:C",
        first_party=first_party,
    )


OURS, THEIRS = endpoint("openai", "ours", first_party=True), endpoint("mine", "theirs")


def test_only_the_first_party_and_who_was_granted_it_lies_at_the_root():
    assert (prefix_of(OURS), prefix_of(THEIRS)) == ("", "/plugins/mine")
    assert prefix_of(THEIRS, granted=["mine"]) == ""
    assert prefix_of(THEIRS, granted=["other"]) == "/plugins/mine"


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ("/v1/models", "/v1/models", True),
        ("/v1/models", "/v1/models/", True),
        ("/v1/models", "/v1/model", False),
        ("/v1/models/{id}", "/v1/models/{name}", True),
        ("/v1/models/{id}", "/v1/models/all", True),
        ("/v1/{a}/x", "/v1/b/{c}", True),
        ("/v1/{a}/x", "/v1/b/y", False),
        ("/v1/models", "/v1/models/{id}", False),
        ("/{rest:path}", "/v1/models", True),
        ("/v1/{rest:path}", "/v2/models", False),
        ("/", "/v1", False),
    ],
)
def test_patterns_that_one_request_could_fit_collide(one, other, meet):
    for first, second in ((one, other), (other, one)):
        routes = [Route(OURS, "GET", first), Route(THEIRS, "get", second)]
        if meet:
            with pytest.raises(PluginError, match="endpoint:openai@ours") as caught:
                check_routes(routes)
            assert caught.value.distribution == "theirs"
            assert "endpoint:mine@theirs" in str(caught.value)
        else:
            check_routes(routes)


def test_other_methods_and_routes_of_one_plugin_do_not_collide():
    check_routes([Route(OURS, "GET", "/a"), Route(THEIRS, "POST", "/a")])
    check_routes([Route(THEIRS, "GET", "/a"), Route(THEIRS, "GET", "/{b}")])
