"""Files with one word a line: CoNLL-2003, WNUT-17, GermEval and their like, with texts and lines in messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from distill.data.files import Table, read
from distill.data.task_types.spans import codes, types_of
from distill.errors import ConfigError, DataError

pytestmark = pytest.mark.usefixtures("own_cache")

TOKENS = [["Rosa", "Lind", "sings", "."], ["In", "Graz", "too"]]
TAGS = [["B-PER", "I-PER", "O", "O"], ["O", "B-LOC", "O"]]

CONLL_2003 = """-DOCSTART- -X- -X- O

Rosa NNP B-NP B-PER
Lind NNP I-NP I-PER
sings VBZ B-VP O
. . O O

In IN B-PP O
Graz NNP B-NP B-LOC
too RB O O
"""
WNUT = "Rosa\tB-PER\nLind\tI-PER\nsings\tO\n.\tO\n\t\nIn\tO\nGraz\tB-LOC \ntoo\tO\n\n\n"
GERMEVAL = """#\thttp://example.org/a [2009-10-17]
1\tRosa\tB-PER\tO
2\tLind\tI-PER\tB-LOC
3\tsings\tO\tO
4\t.\tO\tO

#\thttp://example.org/b [2009-10-17]
1\tIn\tO\tO
2\tGraz\tB-LOC\tO
3\ttoo\tO\tO
"""
MULTICONER = "# id 7 domain=en\nRosa _ _ B-PER\nLind _ _ I-PER\nsings _ _ O\n. _ _ O\n\n# id 8 domain=en\n" + (
    "In _ _ O\nGraz _ _ B-LOC\ntoo _ _ O\n"
)


def load(path: Path) -> Table:
    return read(str(path), "tasks.train")


def lists(table: Table, column: str = "ner_tags") -> list[list[str]]:
    return list(table.rows[column].to_pylist())


@pytest.mark.parametrize("content", [CONLL_2003, WNUT, GERMEVAL, MULTICONER])
@pytest.mark.parametrize("name", ["f.conll", "f.bio", "f.iob", "f.txt", "f.tsv"])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_forms(content: str, name: str, ends: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + content.replace("\n", ends).encode())
    for table in (load(tmp_path / name), load(tmp_path / name)):  # the second one is from the cache
        assert lists(table, "tokens") == TOKENS
        assert lists(table) == TAGS
        note = table.notes[0]
        assert "2 texts of 7 words, tokens from column" in note
        assert ("one word a line" in note) == (name in ("f.txt", "f.tsv"))
        assert table.where(1) == f"{tmp_path / name}, line {content[: content.index('In')].count(chr(10)) + 1} (text 2)"


def test_other_columns_are_kept(tmp_path: Path) -> None:
    (tmp_path / "f.conll").write_text(CONLL_2003)
    (tmp_path / "g.conll").write_text(GERMEVAL)
    assert lists(load(tmp_path / "f.conll"), "column_2")[1] == ["IN", "NNP", "RB"]
    assert lists(load(tmp_path / "g.conll"), "inner_tags")[0] == ["O", "B-LOC", "O", "O"]


def test_first_scheme_becomes_the_second(tmp_path: Path) -> None:
    (tmp_path / "f.conll").write_text("A I-X\nb I-X\nC B-X\nd I-Y\n\nE I-Y\nf O\n")
    table = load(tmp_path / "f.conll")
    assert lists(table) == [["B-X", "I-X", "B-X", "B-Y"], ["B-Y", "O"]]
    assert "IOB1" in table.notes[1]


@pytest.mark.parametrize("tags", [["B-X", "I-X", "O", "I-X"], ["I-X", "I-X", "O", "I-Y"], ["X", "X", "O", "Y"]])
def test_other_tags_stay(tags: list[str], tmp_path: Path) -> None:
    (tmp_path / "f.conll").write_text("".join(f"word {tag}\n" for tag in tags))
    assert lists(load(tmp_path / "f.conll")) == [tags]


def test_number_sign_is_a_word_where_it_has_a_tag(tmp_path: Path) -> None:
    (tmp_path / "f.conll").write_text("#\tO\nfun\tO\n\n#\tB-X\n1\tI-X\n")
    assert lists(load(tmp_path / "f.conll"), "tokens") == [["#", "fun"], ["#", "1"]]


def test_header_is_no_word(tmp_path: Path) -> None:
    (tmp_path / "f.tsv").write_text("word\ttag\n" + WNUT)
    table = load(tmp_path / "f.tsv")
    assert lists(table, "tokens") == TOKENS
    assert "its first line names the columns" in table.notes[1]


def test_words_with_spaces_and_odd_spaces(tmp_path: Path) -> None:
    (tmp_path / "f.conll").write_text("New York\tB-LOC\n10\u00a0000\tO\n")
    assert lists(load(tmp_path / "f.conll"), "tokens") == [["New York", "10\u00a0000"]]
    (tmp_path / "g.conll").write_text("10\u00a0000   O\n a   B-X\n")
    assert lists(load(tmp_path / "g.conll"), "tokens") == [["10\u00a0000", "a"]]


@pytest.mark.parametrize("content", ["text\ttag\nIn Graz\tB-1\n", "text\tlabel\na\tO\nb\tO\n\nc\tB-x\n"])
def test_tables_stay_tables(content: str, tmp_path: Path) -> None:
    (tmp_path / "f.tsv").write_text(content)
    expected = ["tokens", "ner_tags"] if "\n\n" in content else ["text", "tag"]
    assert load(tmp_path / "f.tsv").rows.column_names == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a O\nb\n\nc O\n", r"line 2 \(text 1\): got 1 columns; must be 2"),
        ("a O\nb O\n\nc O O\n", r"line 4 \(text 2\): got 3 columns; must be 2"),
        ("a\tO\n\tO\n", r"line 2 \(text 1\): got a column without a value"),
        ("a\tO\nb\t\n", r"line 2 \(text 1\): got 1 columns; must be 2"),
        ("a (PER*\nb *)\n", r"line 1 \(text 1\): got tag '\(PER\*'"),
        ("1 a _ N _ _ 0 root\n2 b _ N _ _ 1 x\n", "as in a treebank"),
        ("only\nwords\n", "got no lines of words with tags"),
        ("\n\n", "got no lines of words with tags"),
        ("a O\n" * 260_000, "got a text of more than 1,000,000 characters"),
        ("a O\nb\0 O\n", "got a NUL byte"),
    ],
)
def test_malformed(content: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "f.conll").write_text(content)
    with pytest.raises(DataError, match=expected):
        load(tmp_path / "f.conll")


def test_treebank_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "f.conllu").write_text("1\ta\n")
    with pytest.raises(ConfigError, match="it is a treebank"):
        load(tmp_path / "f.conllu")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("17\tIn\tO\n17\tGraz\tB-X\n\n18\tGraz\tB-X\n", "got numbers alone in column 1"),
        ("-DOCSTART- -X- O O\n\n7 In IN O\n7 Graz NN B-X\n", "got numbers alone in column 1"),
        ("1-1\t0-2\tIn\tO\n1-2\t3-7\tGraz\tB-X\n", "got numbers alone in column 1"),
        ("a\tB-A\tB-X\tx\nb\tB-B\tO\ty\n", "got tags in the columns 2 and 3, and none in the last"),
        ("1 zu IN O\n2 der DT O\n\n1-2 zur _ O\n1 zu IN O\n2 der DT B-X\n", "got '1-2' as the number of a word"),
        ("1\tIn\tB-A\tO\tx\n2\tGraz\tB-B\tB-X\ty\n", "got tags in the columns 3 and 4, and none in the last"),
        ("O\tIn\nB-X\tGraz\n\nB-X\tGraz\n", "got tags in column 1, before the words"),
    ],
)
def test_a_first_column_without_words_is_refused(content: str, expected: str, tmp_path: Path) -> None:
    for name in ("f.conll", "f.tsv") if "\t" in content and "got tags in the" in expected else ("f.conll",):
        (tmp_path / name).write_text(content)
        with pytest.raises(DataError, match=rf"{name}.*: {expected}"):
            load(tmp_path / name)


NUMBERED = {
    "parts of speech": ("1\tIn\tIN\tO\n2\tGraz\tNNP\tB-LOC\n", "column_3", ["IN", "NNP"]),
    "chunks": ("1\tIn\tB-PP\tO\n2\tGraz\tB-NP\tB-LOC\n", "column_3", ["B-PP", "B-NP"]),
    "a header": ("id\ttoken\tpos\tner\n1\tIn\tIN\tO\n2\tGraz\tNNP\tB-LOC\n", "column_3", ["IN", "NNP"]),
    "documents": ("-DOCSTART- -X- O O\n\n1 In IN O\n2 Graz NNP B-LOC\n", "column_3", ["IN", "NNP"]),
    "annotators": ("1\tIn\tO\t-\tada\n2\tGraz\tB-LOC\t-\tbo\n", "column_5", ["ada", "bo"]),
    "spans inside": ("1\tIn\tO\tO\n2\tGraz\tB-LOC\tO\n", "inner_tags", ["O", "O"]),
    "a comment column": ("id\ttoken\tner\tremark\n1\tIn\tO\tx\n2\tGraz\tB-LOC\ty\n", "column_4", ["x", "y"]),
}


@pytest.mark.parametrize("name", NUMBERED)
def test_columns_of_numbered_words(name: str, tmp_path: Path) -> None:
    content, column, values = NUMBERED[name]
    (tmp_path / "f.conll").write_text(content)
    table = load(tmp_path / "f.conll")
    assert (lists(table, "tokens"), lists(table)) == ([["In", "Graz"]], [["O", "B-LOC"]])
    assert lists(table, column) == [values]
    assert ("the tags are from column 3, because" in table.notes[-1]) == (name == "annotators")


TAGGED = {
    "types inside of spans": ("1 In O O\n2 Graz LOC O\n3 Bank ORG LOC\n", ["O", "LOC", "ORG"]),
    "another scheme inside": ("1 In O O\n2 Graz B_LOC O\n3 Bank I_LOC B_LOC\n", ["O", "B_LOC", "I_LOC"]),
    "a header": ("token pos chunk ner\nIn IN B-PP O\nGraz NNP B-NP LOC\nLinz NNP B-NP LOC\n", ["O", "LOC", "LOC"]),
    "no header": ("In IN B-PP PER\nGraz NNP B-NP LOC\nLinz NNP B-NP LOC\n", ["PER", "LOC", "LOC"]),
    "parts of speech after chunks": ("In B-PP IN\nGraz B-NP NNP\nLinz I-NP NNP\n", ["IN", "NNP", "NNP"]),
    "a lemma that is named as a column": ("Labels NNS label O\nin IN in O\nGraz NNP Graz B-LOC\n", ["O", "O", "B-LOC"]),
    "a lemma and types": ("Labels NNS label ART\nin IN in X\nGraz NNP Graz ART\n", ["ART", "X", "ART"]),
    "a tag that is named as a column": ("nice pos\ngood pos\nbad neg\n", ["pos", "pos", "neg"]),
}


@pytest.mark.parametrize("name", TAGGED)
def test_the_column_of_the_tags(name: str, tmp_path: Path) -> None:
    content, tags = TAGGED[name]
    (tmp_path / "f.conll").write_text(content)
    assert lists(load(tmp_path / "f.conll")) == [tags]


LETTERS = "Rosa\tB\nLind\tI\nsings\tO\n.\tO\n\nIn\tO\nGraz\tB\ntoo\tO\n"


@pytest.mark.parametrize("name", ["f.conll", "f.tsv", "f.txt"])
def test_letters_alone_are_prefixes_of_a_single_type(name: str, tmp_path: Path) -> None:
    """As in BC2GM, NCBI-disease and other files with spans of one type."""
    (tmp_path / name).write_text(LETTERS)
    table = load(tmp_path / name)
    assert lists(table, "tokens") == TOKENS
    assert lists(table) == [["B", "I", "O", "O"], ["O", "B", "O"]]


def test_a_word_that_looks_like_a_comment_keeps_its_letter(tmp_path: Path) -> None:
    (tmp_path / "f.conll").write_text("#\tB\nLind\tI\nsings\tO\n\n" + LETTERS)
    assert lists(load(tmp_path / "f.conll"), "tokens")[0] == ["#", "Lind", "sings"]


@pytest.mark.parametrize("letters", ["OBI", "OBIES", "OBILU"])
def test_spans_of_letters_alone_are_those_of_tags_with_a_type(letters: str) -> None:
    typed = [letter if letter == "O" else f"{letter}-_" for letter in letters]
    assert types_of([*letters]) == types_of(typed) == ["_"]
    assert codes([*letters]).tolist() == codes(typed).tolist()


def test_classes_of_one_letter_are_no_tags(tmp_path: Path) -> None:
    (tmp_path / "f.tsv").write_text("text\tlabel\n" + "".join(f"text {n} is here\t{'OBE'[n % 3]}\n" for n in range(9)))
    assert load(tmp_path / "f.tsv").rows.column_names == ["text", "label"]
