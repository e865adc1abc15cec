from __future__ import annotations

import traceback

import pytest
from pydantic import BaseModel, Field, SecretBytes, SecretStr

from framework.errors import ConfigError, PluginError
from framework.plugins.options import is_secret, parse_option, without


def states(registry, kind):
    return {r.key.partition(":")[2]: r.state.value for r in registry.records(kind)}


def test_registration_can_be_closed(house):
    """A class of this process is there until its handle is closed, twice if need be."""
    registry = house.registry()
    from thing_contract import Extra

    class Mine(Extra):
        pass

    with registry.register("extra", "mine", Mine, "me") as handle:
        assert registry.load("extra", "mine") is Mine
        with pytest.raises(PluginError, match="registered already"):
            registry.register("extra", "mine", Mine, "me")
    assert handle.closed
    handle.close()
    assert registry.records("extra") == []


def test_registration_checks_class_and_deny_list(house):
    """The wrong class is refused at once, and a denied name stays denied."""
    registry = house.registry({"FRAMEWORK_PLUGINS_DENY": "mine"})
    from thing_contract import Extra

    with pytest.raises(PluginError, match="does not fulfil"):
        registry.register("thing", "mine", Extra, "me")
    registry.register("extra", "mine", Extra, "me")
    assert states(registry, "extra") == {"mine@me": "denied"}


def test_a_transaction_takes_back_what_an_error_interrupts(house):
    """After an error nothing of the transaction is left; what was there before stays."""
    registry = house.registry()
    from thing_contract import Extra

    registry.register("extra", "before", Extra, "me")

    def interrupted():
        with registry.transaction():
            registry.register("extra", "outer", Extra, "me")
            with registry.transaction():
                registry.register("extra", "inner", Extra, "me")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert states(registry, "extra") == {"before@me": "loaded"}
    with registry.transaction():
        registry.register("extra", "kept", Extra, "me")
    assert states(registry, "extra") == {"before@me": "loaded", "kept@me": "loaded"}


def test_a_failed_import_takes_back_what_it_registered(house):
    """A plugin that registers and then fails leaves nothing behind."""
    code = (
        "import thing_contract as t\nt.registry.register('extra', 'x', t.Extra, 'dist')\n"
        "raise RuntimeError('boom')"
    )
    house.add("dist", {"things t": "T"}, code)
    registry = house.registry()
    import thing_contract

    thing_contract.registry = registry
    with pytest.raises(PluginError, match="boom"):
        registry.load("thing", "t")
    assert registry.records("extra") == []


OPTIONS = """
from pydantic import BaseModel, SecretStr, field_validator
from thing_contract import Extra
class E(Extra):
    class Options(BaseModel):
        depth: int = 3
        token: SecretStr = SecretStr("")
        tokens: dict[str, list[SecretStr]] = {}
        @field_validator("token", "tokens")
        @classmethod
        def _checked(cls, value):
            text = (value["a"][0] if isinstance(value, dict) else value).get_secret_value()
            if text == "hush":
                raise ValueError(text + " is no token")
            return value
"""


def test_options_are_validated_and_given_to_the_constructor(house):
    """Texts are converted by the plugin's model, and defaults fill the rest."""
    house.add("d", {"extras e": "E"}, OPTIONS)
    registry = house.registry({"FRAMEWORK_PLUGINS": "e"}, options={"extra": {"e": {"depth": "7"}}})
    options = registry.create("extra", "e").options
    assert options.depth == 7
    assert house.registry({"FRAMEWORK_PLUGINS": "e"}).create("extra", "e").options.depth == 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dept": 1}, r"has no option 'dept' \(did you mean 'depth'\?\)"),
        ({"depth": "deep"}, "depth: Input should be a valid integer"),
        ({"token": ["hush"]}, "token: "),
        ({"token": "hush"}, r"token: Value error, \*+ is no token"),
        ({"tokens": {"a": ["hush"]}}, r"tokens: Value error, \*+ is no token"),
    ],
)
def test_wrong_options_are_an_error_without_values(house, given, message):
    """An unknown key gets near matches; a value, which may be a secret, is not repeated."""
    house.add("d", {"extras e": "E"}, OPTIONS)
    registry = house.registry({"FRAMEWORK_PLUGINS": "e"}, options={"extra": {"e": given}})
    with pytest.raises(PluginError, match=message) as caught:
        registry.create("extra", "e")
    assert "hush" not in str(caught.value)


ALIASED = """
from pydantic import BaseModel, ConfigDict, Field
from thing_contract import Extra
class E(Extra):
    class Options(BaseModel):
        model_config = ConfigDict({config})
        limit: int = Field(0, alias="most")
    def __init__(self, options):
        self.limit = options.limit
"""


@pytest.mark.parametrize(
    ("config", "taken"),
    [
        ("", {"most"}),
        ("populate_by_name=True", {"most", "limit"}),
        ("validate_by_name=True", {"most", "limit"}),
        ("validate_by_name=True, validate_by_alias=False", {"limit"}),
    ],
)
def test_an_option_goes_by_the_names_that_pydantic_takes(house, config, taken):
    """One that it does not take would be passed over in silence."""
    house.add("d", {"extras e": "E"}, ALIASED.format(config=config))
    for key in ("most", "limit"):
        env, options = {"FRAMEWORK_PLUGINS": "e"}, {"extra": {"e": {key: 3}}}
        registry = house.registry(env, options=options)
        if key in taken:
            assert registry.create("extra", "e").limit == 3
        else:
            with pytest.raises(PluginError, match=f"has no option '{key}'"):
                registry.create("extra", "e")


class Inner(BaseModel):
    key: SecretBytes | None = None


class Kinds(BaseModel):
    plain: int = 1
    secret: SecretStr = SecretStr("")
    quiet: str = Field("", repr=False)
    within: dict[str, list[Inner]] = {}
    called: SecretStr = Field(SecretStr(""), alias="other")


@pytest.mark.parametrize(
    ("key", "hidden"),
    [
        ("plain", False), ("secret", True), ("quiet", True), ("within", True), ("called", True),
        ("other", True), ("unknown", True),
    ],
)  # fmt: skip
def test_what_is_shown_of_options(key, hidden):
    assert is_secret(Kinds, key) is hidden


def test_of_several_secrets_the_longer_is_masked_first():
    assert without("abc ab", ["ab", "abc", ""]) == "********** **********"


TELLS = """
from pydantic import BaseModel, SecretStr
from framework.errors import ConfigError
from thing_contract import Extra
class E(Extra):
    class Options(BaseModel):
        token: SecretStr
        where: str = "here"
    def __init__(self, options):
        raise {error}(f"{{options.token.get_secret_value()}} is refused {{options.where}}")
"""


@pytest.mark.parametrize("error", ["ValueError", "SystemExit", "ConfigError"])
def test_a_constructor_that_fails_tells_no_secret(house, error):
    house.add("d", {"extras e": "E"}, TELLS.format(error=error))
    registry = house.registry(
        {"FRAMEWORK_PLUGINS": "e"}, options={"extra": {"e": {"token": "hush", "where": "there"}}}
    )
    with pytest.raises(PluginError, match=r"\*+ is refused there") as caught:
        registry.create("extra", "e")
    assert "hush" not in "".join(traceback.format_exception(caught.value))
    (record,) = registry.records("extra")
    assert "hush" not in record.reason


def test_an_error_that_cannot_tell_its_text_is_told_all_the_same(house):
    bad = "class Bad(Exception):\n    def __str__(self): raise RuntimeError\n"
    house.add("d", {"extras e": "E", "extras f": "F"}, bad + (
        "from thing_contract import Extra\n"
        "class E(Extra):\n    def __init__(self, options): raise Bad\n"
        "def __getattr__(name): raise Bad\n"
    ))  # fmt: skip
    for name, when in (("e", "to start"), ("f", "on import")):
        registry = house.registry({"FRAMEWORK_PLUGINS": name})
        with pytest.raises(PluginError, match=f"extra:{name}@d failed {when}: Bad, whose text"):
            registry.create("extra", name)


def test_options_for_nobody_are_an_error(house, extra_code):
    """Options of an unknown plugin or kind, or of one that takes none, are refused."""
    house.add("d", {"extras e": "E"}, extra_code)
    env = {"FRAMEWORK_PLUGINS": "e"}
    with pytest.raises(PluginError, match="option of unknown plugin extra:ee"):
        house.registry(env, options={"extra": {"ee": {}}}).check()
    with pytest.raises(PluginError, match=r"option of unknown kind 'extr'.*'extra'"):
        house.registry(env, options={"extr": {"e": {}}}).check()
    with pytest.raises(PluginError, match="takes no options"):
        house.registry(env, options={"extra": {"e": {"x": 1}}}).create("extra", "e")


def test_option_texts():
    """kind.name.key=value is read into its parts; another form is an error."""
    assert parse_option(" model.m.a.b = x=y") == ("model", "m", "a.b", " x=y")
    for text in ("model.m=hush", "model.m.key", ".m.key=hush", ""):
        with pytest.raises(ConfigError, match="not understood") as caught:
            parse_option(text)
        assert "hush" not in str(caught.value)
