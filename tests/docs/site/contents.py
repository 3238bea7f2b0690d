"""The navigation of the site: each page in one part. A page that is not listed here joins the part of its folder."""

from __future__ import annotations

PARTS: dict[str, list[str]] = {
    "Tutorial": ["docs/tutorial.md"],
    "Guides": [
        "docs/guides/lock-one-job.md",
        "docs/guides/any-operator.md",
        "docs/guides/in-a-dag.md",
        "docs/guides/dbt-and-cosmos.md",
        "docs/guides/rerun-a-month.md",
        "docs/guides/alter-a-big-table.md",
        "docs/guides/free-stale-locks.md",
        "docs/guides/http-api.md",
        "docs/guides/watch-and-alert.md",
        "docs/guides/lock-a-hive-job.md",
        "docs/guides/iceberg-hudi-delta.md",
        "docs/guides/coming-from.md",
        "docs/guides/from-hive-settings.md",
        "docs/guides/without-zookeeper.md",
        "docs/guides/without-airflow.md",
        "docs/guides/secure.md",
        "docs/guides/test-a-dag.md",
        "dags_examples/README.md",
    ],
    "Concepts": ["docs/glossary.md", "docs/promises.md", "docs/architecture.md", "docs/costs.md"],
    "Reference": ["docs/README.md", "docs/reference.md", "docs/compatibility.md", "docs/dependencies.md"],
    "Operations": ["docs/questions.md", "docs/production.md", "docs/upgrade.md", "docs/support.md", "SECURITY.md"],
    "How we know that it is right": [
        "docs/correctness.md",
        "docs/deaths.md",
        "docs/faults.md",
        "docs/documents.md",
        "spec/README.md",
    ],
    "The project": [
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "docs/development.md",
        "docs/releasing.md",
        "CODE_OF_CONDUCT.md",
    ],
}

TITLES = {
    "docs/tutorial.md": "Your first locked task",
    "docs/README.md": "Find a page, choose a lock store",
    "docs/reference.md": "Arguments, options, errors, metrics",
    "docs/questions.md": "Questions and messages",
    "dags_examples/README.md": "DAGs to copy",
    "spec/README.md": "The specification",
    "CHANGELOG.md": "Changes",
}
"""What the sidebar shows in place of a page's heading."""


def parts(pages: list[str]) -> dict[str, list[str]]:
    """The existing pages by part: those of PARTS in their order, then the others."""
    found = {part: [page for page in listed if page in pages] for part, listed in PARTS.items()}
    listed = {page for of_part in PARTS.values() for page in of_part}
    for page in sorted(set(pages) - listed):
        part = "Guides" if page.startswith("docs/guides/") else "Operations" if "/" in page else "The project"
        found[part].append(page)
    return found


def toctrees(pages: list[str]) -> str:
    """The navigation as MyST's directives, for the end of the first page."""
    blocks = []
    for part, listed in parts(pages).items():
        entries = [f"{TITLES[page]} <{page}>" if page in TITLES else page for page in listed]
        blocks.append("\n".join(["```{toctree}", f":caption: {part}", ":hidden:", "", *entries, "```"]))
    return "\n\n".join(blocks)
