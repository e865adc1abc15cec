"""No two endpoints answer one request, however their routes are written."""

from __future__ import annotations

import pytest

from framework.errors import PluginError
from framework.plugins.routes import Route, check_routes

OURS, THEIRS = "endpoint:openai@ours", "endpoint:mine@theirs"


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
        ("/plugins/mine/v1/models", "/v1/models", False),
    ],
)
def test_patterns_that_one_request_could_fit_collide(one, other, meet):
    for first, second in ((one, other), (other, one)):
        routes = [Route(OURS, "GET", first), Route(THEIRS, "get", second)]
        if meet:
            with pytest.raises(PluginError, match=f"{THEIRS} and {OURS} both claim") as caught:
                check_routes(routes)
            assert caught.value.distribution == "theirs"
        else:
            check_routes(routes)


def test_methods_and_owners_count():
    check_routes([Route(OURS, "GET", "/a"), Route(THEIRS, "POST", "/a")])
    check_routes([Route(THEIRS, "GET", "/a"), Route(THEIRS, "GET", "/{b}")])
    with pytest.raises(PluginError, match="both claim"):
        check_routes([Route(OURS, "*", "/a"), Route(THEIRS, "POST", "/a")])
