from __future__ import annotations

import pytest

from framework.errors import ConfigError
from framework.plugins.kinds import find_kind
from framework.plugins.policy import Policy, first_party, judge, parse_patterns, unmatched


def admitted(env, kind, name, distribution, *, ours=False, no_plugins=False):
    policy = Policy.from_env(env, no_plugins=no_plugins)
    return judge(policy, find_kind(kind), name, distribution, first_party=ours).admitted


@pytest.mark.parametrize(
    ("allow", "kind", "name", "expected"),
    [
        (None, "attention_backend", "a", True),  # unset: the kind's own policy
        (None, "hooks", "h", False),
        ("", "attention_backend", "a", False),  # empty: no third party
        (" , ", "attention_backend", "a", False),
        ("a", "attention_backend", "a", True),  # a list is exhaustive
        ("a", "attention_backend", "b", False),
        ("h", "hooks", "h", True),  # and names what is denied until named
        ("+h", "hooks", "h", True),  # a plus adds
        ("+h", "attention_backend", "b", True),
        ("+h", "hooks", "other", False),
        ("+h,a", "attention_backend", "b", False),  # one entry without a plus: exhaustive
        ("+h,a", "hooks", "h", True),
        (" hooks : h* @ Some_Dist ", "hooks", "hello", True),  # white space, globs, any spelling
        ("hooks:h*@other", "hooks", "hello", False),
        ("command:h", "hooks", "h", False),
        ("*:h", "hooks", "h", True),
        ("+ hooks:h", "hooks", "h", True),
        ("@x".replace("@x", "h@some-*"), "hooks", "h", True),
    ],
)
def test_allow_list(allow, kind, name, expected):
    """Each form of FRAMEWORK_PLUGINS admits exactly what it says of a third party."""
    env = {} if allow is None else {"FRAMEWORK_PLUGINS": allow}
    assert admitted(env, kind, name, "some.dist") is expected


def test_first_party_is_admitted_unless_denied():
    """Only the deny list keeps the first party out."""
    for env in ({}, {"FRAMEWORK_PLUGINS": ""}, {"FRAMEWORK_PLUGINS": "other"}):
        assert admitted(env, "hooks", "h", "ours", ours=True)
    assert admitted({}, "hooks", "h", "ours", ours=True, no_plugins=True)
    assert not admitted({"FRAMEWORK_PLUGINS_DENY": "hooks:*"}, "hooks", "h", "ours", ours=True)


def test_deny_wins_over_allow():
    """A plugin on both lists is denied, and the reason names the entry."""
    policy = Policy.from_env({"FRAMEWORK_PLUGINS": "h", "FRAMEWORK_PLUGINS_DENY": " h @ dist "})
    verdict = judge(policy, find_kind("hooks"), "h", "dist", first_party=False)
    assert not verdict.admitted
    assert "FRAMEWORK_PLUGINS_DENY has 'h @ dist'" in verdict.reason
    assert judge(policy, find_kind("hooks"), "h", "dist2", first_party=False).admitted


def test_no_plugins_overrides_the_allow_list():
    """--no-plugins admits the first party only, whatever the variable says."""
    env = {"FRAMEWORK_PLUGINS": "a"}
    assert not admitted(env, "attention_backend", "a", "dist", no_plugins=True)


def test_only_a_denial_for_lack_of_a_name_can_be_lifted():
    """A choice in the configuration does not get past a list that is exhaustive."""
    for env, until in (({}, True), ({"FRAMEWORK_PLUGINS": ""}, False)):
        policy = Policy.from_env(env)
        verdict = judge(policy, find_kind("hooks"), "h", "dist", first_party=False)
        assert (verdict.admitted, verdict.until_named) == (False, until)


@pytest.mark.parametrize(
    "text", ["a b", "a@b@c", "hooks:a:b", "++a", "a=b", "hooks:a\tb", "a" * 401, "a@x y"]
)
def test_what_no_plugin_can_be_called_is_no_pattern(text):
    """A comma was forgotten, or a mark stands twice: that it is unknown would not say so."""
    with pytest.raises(ConfigError, match="is not understood") as caught:
        parse_patterns(text)
    assert "with commas between" in str(caught.value.expected)
    assert len(str(caught.value)) < 1200


def test_a_glob_over_kinds_matches_some():
    assert parse_patterns("hook*:a")[0].kind == "hook*"
    with pytest.raises(ConfigError, match=r"unknown kind 'platfrom\*' \(did you mean 'platform'"):
        parse_patterns("platfrom*:a")


def test_a_plus_means_nothing_in_the_deny_list():
    with pytest.raises(ConfigError, match="FRAMEWORK_PLUGINS_DENY: pattern '\\+a' is not"):
        Policy.from_env({"FRAMEWORK_PLUGINS_DENY": "b, +a"})


@pytest.mark.parametrize("text", [":a", "a@", "hooks:", "+", "@dist"])
def test_incomplete_pattern_is_an_error(text):
    """A pattern without one of its parts is not guessed at."""
    with pytest.raises(ConfigError, match="incomplete"):
        parse_patterns(text)


@pytest.mark.parametrize("variable", ["FRAMEWORK_PLUGINS", "FRAMEWORK_PLUGINS_DENY"])
@pytest.mark.parametrize("text", ["a, +", "kernl:x"])
def test_a_wrong_pattern_is_told_with_the_variable_that_has_it(variable, text):
    with pytest.raises(ConfigError, match=f"^{variable}: pattern '"):
        Policy.from_env({variable: text})


def test_unknown_kind_in_a_pattern_is_an_error_with_a_near_match():
    """A mistyped kind cannot make a list match nothing unseen."""
    with pytest.raises(ConfigError, match="did you mean 'logits_processor'"):
        parse_patterns("logit_processor:x")


@pytest.mark.parametrize(
    ("text", "strict"), [("1", True), (" on ", True), ("0", False), ("", False)]
)
def test_strict(text, strict):
    """FRAMEWORK_PLUGINS_STRICT is a switch."""
    assert Policy.from_env({"FRAMEWORK_PLUGINS_STRICT": text}).strict is strict


def test_strict_with_another_word_is_an_error():
    """A word that is neither yes nor no is not taken for one of them."""
    with pytest.raises(ConfigError, match="FRAMEWORK_PLUGINS_STRICT"):
        Policy.from_env({"FRAMEWORK_PLUGINS_STRICT": "maybe"})


@pytest.mark.parametrize("allow", ["h*,h,h@dist", "h@dist,h,h*", "h,h@dist,h*"])
def test_the_most_precise_entry_is_who_named_a_plugin(allow):
    verdict = judge(
        Policy.from_env({"FRAMEWORK_PLUGINS": allow}),
        find_kind("hooks"),
        "h",
        "dist",
        first_party=False,
    )
    assert verdict.named_by.text == "h@dist"


def test_unmatched_entries_are_found():
    """Entries that cover no plugin are returned, others are not."""
    patterns = parse_patterns("a,b*,hooks:c,d@x")
    left = unmatched(patterns, [("hooks", "a", "x"), ("model", "c", None), ("model", "d", "y")])
    assert [pattern.text for pattern in left] == ["b*", "hooks:c", "d@x"]


def test_first_party_is_the_extra_of_that_name():
    """Requires-Dist lines of other extras and of none do not count."""
    lines = (
        "numpy>=2",
        'pluggy; python_version >= "3"',
        'Framework_Plugin.Torch; extra == "first-party"',
        'other; extra == "runtime"',
        'framework-plugin-cpu ; python_version >= "3" and extra == "first-party"',
    )
    assert first_party(lines) == {"framework-plugin-torch", "framework-plugin-cpu"}
