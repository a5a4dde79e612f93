"""What the check scripts share: which files are checked, C++ text without comments and strings, and
the way findings are printed. Standard library only."""

import argparse
import pathlib
import re
import subprocess
import sys

PRODUCT_FOLDERS = ("proto", "rendezvous", "agent", "launcher", "trainer")
CPP_SUFFIXES = (".h", ".cpp", ".c")


def arguments(description):
    """Parses `[--root DIR] [FILE ...]` and returns (root, files relative to root)."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("files", nargs="*", help="default: every file that git knows or would add")
    parsed = parser.parse_args()
    root = pathlib.Path(parsed.root).resolve()
    return root, parsed.files or tracked_files(root)


def tracked_files(root):
    """Files under version control and new ones that are not ignored; all files without git."""
    if (root / ".git").exists():
        command = ["git", "-C", str(root), "ls-files", "-z", "-c", "-o", "--exclude-standard"]
        listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        names = sorted(set(listing.split("\0")) - {""})
    else:
        names = sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())
    return [name for name in names if (root / name).is_file()]


def is_cpp(name):
    return name.endswith(CPP_SUFFIXES)


def folder(name):
    return name.split("/", 1)[0]


def is_product(name):
    return is_cpp(name) and folder(name) in PRODUCT_FOLDERS


_COMMENT_OR_STRING = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""",
    re.DOTALL,
)
_DIGIT_SEPARATOR = re.compile(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])")


def code_only(text):
    """The text with comments and literals blanked; line numbers stay as they are."""

    def blank(match):
        inside = match.group(0)
        edge = inside[0] if inside[0] in "\"'" else ""
        return edge + re.sub(r"[^\n]", " ", inside[len(edge):len(inside) - len(edge)]) + edge

    return _COMMENT_OR_STRING.sub(blank, _DIGIT_SEPARATOR.sub("_", text))


def read(root, name):
    return (root / name).read_text(encoding="utf-8", errors="replace")


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def report(findings):
    """Prints `file:line: text` for each finding and returns the exit status."""
    for finding in findings:
        print(finding)
    return 1 if findings else 0


def run(description, check_file):
    """main() of a check: check_file(root, name, text) yields findings."""
    root, files = arguments(description)
    findings = []
    for name in files:
        findings.extend(check_file(root, name))
    sys.exit(report(findings))
