"""Distributions made on the spot, for clauses about metadata and imports."""

from __future__ import annotations

import itertools

from framework.plugins.kinds import find_kind

COUNTER = itertools.count()


def put(monkeypatch, folder, kind, code, **facts):
    """Install a package with the class `P` as plugin "p"; returns its full name.

    facts: further lines of its manifest, as TOML values.
    """
    package = f"site_of_{kind}_{next(COUNTER)}"
    site = folder / package
    (site / package).mkdir(parents=True)
    (site / package / "__init__.py").write_text(code)
    lines = ["schema = 1", "[[plugin]]", f'kind = "{kind}"', 'name = "p"', 'contract = ">=1.0,<2"']
    lines += [f"{key} = {value}" for key, value in facts.items()]
    (site / package / "framework-plugin.toml").write_text("\n".join(lines))
    name = package.replace("_", "-")
    info = site / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: framework>=0.1\n"
    )
    (info / "entry_points.txt").write_text(f"[{find_kind(kind).group}]\np = {package}:P\n")
    monkeypatch.syspath_prepend(str(site))
    return f"{kind}:p@{name}"
