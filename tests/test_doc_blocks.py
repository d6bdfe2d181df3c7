"""Every code block of the pages is of a kind that some test executes: see tests/blocks.py."""

import pytest
from tests import test_doc_commands
from tests.blocks import PAGES, Block, blocks, is_formula, name_of
from tests.test_doc_commands import TEXTS


def wrong(block: Block, before: Block | None, page: list[Block]) -> str:
    """Why no test executes a block of a page, or nothing."""
    first = block.text.split(maxsplit=1)[0] if block.text.strip() else ""
    if block.language in ("python", "bash") and not block.file:
        return ""
    if block.file:
        used = block.file == "pyproject.toml" or any(
            block.file.removesuffix(".py") in other.text for other in page if other != block
        )
        return "" if used else f"no other block of the page uses {block.file}."
    if block.language == "toml":
        return "say on top which file it is: # NAME.toml"
    if block.language == "text":
        said = before is not None and before.language == "bash"
        told = "it is behind no bash block that prints it, and TEXTS does not name it."
        return "" if said or (block.page, first) in TEXTS else told
    if block.language:
        return "no test runs this language: see tests/blocks.py."
    return "" if is_formula(block.text) else "it is no formula, so it needs a language."


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_is_executed(page):
    found = blocks(page)
    before = [None, *found]
    failed = {str(one): wrong(one, before[i], found) for i, one in enumerate(found)}
    assert {name: why for name, why in failed.items() if why} == {}


def test_every_text_is_there():
    shown = {
        (block.page, block.text.split(maxsplit=1)[0])
        for page in PAGES
        for block in blocks(page)
        if block.language == "text"
    }
    assert shown >= {*TEXTS}
    assert {*vars(test_doc_commands)} >= {*TEXTS.values()}
