from __future__ import annotations

import re

import pytest

from framework.errors import PluginError
from framework.plugins.kinds import KINDS, Stability, ThirdParty, find_kind
from framework.plugins.loading import contract_of

DENIED = {"endpoint", "io_processor", "logits_processor", "scheduler_participant", "hooks"}


def test_names_and_groups_are_unique_and_well_formed():
    """Each kind has a name and a group of its own, in the one form."""
    assert len({kind.name for kind in KINDS}) == len({kind.group for kind in KINDS}) == 30
    for kind in KINDS:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", kind.name)
        assert re.fullmatch(r"framework\.[a-z]+(_[a-z]+)*s", kind.group)
        assert kind.scopes


def test_kinds_that_see_requests_or_output_are_denied_until_named():
    """Exactly the kinds of the design are denied for third parties."""
    assert {k.name for k in KINDS if k.third_party is ThirdParty.DENIED} == DENIED


@pytest.mark.parametrize("kind", [k for k in KINDS if k.contract], ids=lambda k: k.name)
def test_contract_says_its_kind(kind):
    """The class that a row points to exists and names the same kind."""
    assert contract_of(kind).kind == kind.name


def test_reserved_kind_has_no_contract_and_says_so():
    """Asking for the contract of a reserved kind is a clear error."""
    reserved = [k for k in KINDS if k.stability is Stability.RESERVED]
    assert {k.name for k in reserved} == {k.name for k in KINDS if k.contract is None}
    with pytest.raises(PluginError, match="'communicator' is reserved"):
        contract_of(find_kind("communicator"))


def test_unknown_kind_gets_near_matches():
    """A mistyped kind is answered with the right one."""
    with pytest.raises(PluginError, match=r"did you mean 'attention_backend'"):
        find_kind("attention_backends")
