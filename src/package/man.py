#!/usr/bin/python3
"""Makes the manual pages of the README.md of each directive, of the project's, of src/cli/README.md, and of operations and
corefile in src/docs.

usage: man.py SOURCE OUTPUT VERSION

SOURCE is the top of the tree. Pages in OUTPUT, compressed: idetcd(8), Corefile.idetcd(5), and idetcd-NAME(7) for each
directive.
lowdown(1) turns Markdown into roff; here is only what a manual page wants otherwise: its sections, the NAME, lists for
tables, and other pages named as pages.
"""

import gzip
import re
import subprocess
import sys
from pathlib import Path

FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#+) (.*)$", re.MULTILINE)
LINK = re.compile(r"\[([^\]]+)\]\(([^()\s]+)\)")


def outside_fences(text, change):
    return "".join(part if part.startswith("```") else change(part) for part in FENCE.split(text))


def section(text, title):
    """What is below the heading `title`, down to the next one of its level or above."""
    parts = FENCE.split(text)
    found = []
    level = None
    for part in parts:
        if part.startswith("```"):
            if level:
                found.append(part)
            continue
        for line in part.splitlines(keepends=True):
            heading = HEADING.match(line.rstrip("\n"))
            if heading and level and len(heading[1]) <= level:
                return "".join(found)
            if heading and heading[2] == title:
                level = len(heading[1])
            elif level:
                found.append(line)
    if not level:
        raise ValueError(f"there is no section '{title}'")
    return "".join(found)


def page_of(target):
    """The manual page that a link of the documents leads to."""
    directive = re.search(r"(?:^|/)([a-z0-9]+)/README\.md", target)
    if directive and directive[1] != "cli" and "bench" not in target and "src/README" not in target:
        return f"**idetcd-{directive[1]}**(7)"
    if target.endswith("corefile.md"):
        return "**Corefile.idetcd**(5)"
    return "**idetcd**(8)" if re.search(r"(operations|troubleshooting|recipes|names)\.md|README\.md", target) or target.startswith("#") else None


def with_pages(text, own):
    def of_link(match):
        label, target = match[1], match[2]
        if re.match(r"\w+:", target):
            return f"{label} <{target}>" if label != target else target
        page = page_of(target)
        plain = label.strip("`")
        if page is None or page == own or target.startswith("#"):
            return label
        return page if f"idetcd-{plain}" in page or plain.endswith(".md") else f"{label} ({page})"
    return LINK.sub(of_link, text)


def promoted(text, by):
    """Its headings `by` levels higher, those of the first level in capitals."""
    def of_heading(match):
        level = max(1, len(match[1]) - by)
        return f"{'#' * level} {match[2].upper() if level == 1 else match[2]}"
    return HEADING.sub(of_heading, text)


def listed(table):
    """A table as a list: its first column the terms. On a terminal cells are too narrow for sentences."""
    head, _, *rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))] for line in table.strip().splitlines()]
    items = []
    for term, *cells in rows:
        *short, last = cells
        said = [f"{title}: {cell}." for title, cell in zip(head[1:], short) if cell and cell != "–"]
        items.append(f"{term}\n:   {' '.join([*said, last])}\n")
    return "\n" + "\n".join(items) + "\n"


def with_lists(text):
    return re.sub(r"(?:^\|.*\n)+", lambda match: listed(match[0]), text, flags=re.MULTILINE)


def roff(name, number, about, markdown, version):
    own = f"**{name}**({number})"
    markdown = f"# NAME\n\n{name} - {about}\n\n{outside_fences(markdown, lambda text: with_lists(with_pages(text, own)))}"
    title = [f"-mtitle={name.upper()}", f"-msection={number}", f"-msource=idetcd {version}", "-mvolume=idetcd"]
    made = subprocess.run(["lowdown", "-s", "-Tman", *title], input=markdown, capture_output=True, text=True, check=True).stdout
    # A NAME has a dash that is none of prose.
    made = re.sub(re.escape(f"{name} - "), lambda _: f"{name} \\- ", made, count=1)
    made = re.sub(r"^\.SH\n(.+)$", r'.SH "\1"', made, flags=re.MULTILINE)
    made = re.sub(r"^\.SS\n(.+)$", r'.SS "\1"', made, flags=re.MULTILINE)
    # Lines that are not filled up need no room between words; and not every man knows the font of lowdown's `code`.
    made = re.sub(r"^(\.TH .*)$", r"\1\n.ad l", made, count=1, flags=re.MULTILINE)
    return made.replace(r"\fC", r"\fB")


def directive_page(path, version):
    text = path.read_text(encoding="utf-8")
    name = path.parent.name
    title, _, rest = text.partition("\n\n")
    assert title == f"# {name}", path
    about, _, body = rest.partition("\n\n## ")
    plain = re.sub(r"\s+", " ", re.sub(r"[*`]", "", LINK.sub(r"\1", about))).split(". ")[0].rstrip(".")
    short = plain.removeprefix(f"{name} ")
    body = f"# DESCRIPTION\n\n{about}\n\n" + outside_fences("## " + body, lambda part: promoted(part, 1))
    body += "\n\n# SEE ALSO\n\n**idetcd**(8), **Corefile.idetcd**(5)\n"
    return f"idetcd-{name}", 7, short, body


def subcommands(root):
    """What src/cli/README.md says, as one section."""
    readme = (root / "src" / "cli" / "README.md").read_text(encoding="utf-8")
    return "# SUBCOMMANDS\n" + readme.partition("\n")[2] + "\n\n"


def server_page(root):
    readme = (root / "README.md").read_text(encoding="utf-8")
    operations = (root / "src" / "docs" / "operations.md").read_text(encoding="utf-8")
    introduction = readme.partition("\n\n")[2].partition("\n## ")[0]
    body = "# SYNOPSIS\n\n**idetcd** [*option*...]\n\n**idetcd** *subcommand* [*option*...]\n\n# DESCRIPTION\n\n" + introduction + "\n"
    command_line, _, rest = operations.partition("\n## ")[2].partition("\n## ")
    body += "# COMMAND LINE" + command_line.removeprefix("Command line") + "\n" + subcommands(root)
    body += outside_fences("## " + rest, lambda part: promoted(part, 1))
    body += "\n\n# SEE ALSO\n\n**Corefile.idetcd**(5), and **idetcd-***NAME*(7) for each directive NAME\n"
    return "idetcd", 8, "names for the machines of a cluster, and a resolver for each", body


def corefile_page(root):
    readme = (root / "README.md").read_text(encoding="utf-8")
    _, _, corefile = (root / "src" / "docs" / "corefile.md").read_text(encoding="utf-8").partition("\n\n")
    body = "# DESCRIPTION\n\n" + outside_fences(corefile, lambda part: promoted(part, 1))
    _, _, index = section(readme, "Configuration").partition("\n### Directives\n")
    body += "\n\n# DIRECTIVES\n\n" + index
    return "Corefile.idetcd", 5, "configuration of idetcd", body + "\n\n# SEE ALSO\n\n**idetcd**(8)\n"


def main():
    root, output, version = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    pages = [server_page(root), corefile_page(root)]
    pages += [directive_page(path, version) for path in sorted((root / "src" / "directive").glob("*/README.md"))]
    for name, number, about, body in pages:
        page = output / f"man{number}" / f"{name}.{number}.gz"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_bytes(gzip.compress(roff(name, number, about, body, version).encode(), mtime=0))


if __name__ == "__main__":
    main()
