"""Hostile input: statements with odd names and conditions, broken ones, and random tokens."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SHAPES = (
    "select * from {t} where {c}",
    "select * from {t} a left join {t} b on {c} where {c}",
    "with c as (select * from {t} where {c}) select * from c, {t} where {c}",
    "select * from (select * from {t} union all select * from {t}) s where {c}",
    "insert overwrite table {t} partition ({s}) select * from {t} where {c}",
    "insert into {t} select * from {t}",
    "from {t} insert into {t} select * where {c} insert into {t} partition ({s}) select 1",
    "alter table {t} drop partition ({s})",
    "alter table {t} add partition ({s})",
    "alter table {t} rename to {t}",
    "load data inpath 'x' into table {t} partition ({s})",
    "truncate table {t} partition ({s})",
    "create table {t} as select * from {t} where {c}",
    "create view {t} as select * from {t}; select * from {t} where {c}",
    "delete from {t} where {c}",
    "merge into {t} using {t} on {c} when matched then delete",
    "use {d}; drop table if exists {t}",
    "analyze table {t} partition ({s}) compute statistics",
    "declare v string; set var v = 'select * from {t}', w = v; execute immediate v || ' where x = 1' into w",
    "declare or replace variable n, m = 't'; select * from identifier('dw.' || n) where {c}; insert into identifier(m) select 1",
    "execute immediate 'select * from identifier(:n) where dt = ''a''' using concat('', 'dw.t') as n, 5 x",
    "begin declare c cursor for select * from {t} where {c}; set v = 'select * from {t}'; execute immediate v; end",
    "create temporary view v as select 1; alter view v as select * from {t}; alter view v rename to w; select * from w where {c}",
    "select * from (select * from {t} where {c}) pivot (sum(x) + 1 as s, corr(distinct x, y) for dt in ('a'))",
)
TABLES = ("t", "h", "u", "dw.t", "dw.h", "DW.U", "`dw`.`t`", "`h`", "all_t", "dw.day_t", "nope", "other.nope", "t9")
ODD_TABLES = (
    "a.b.c",
    "`dw.t`",
    "dw..t",
    "é.ü",
    "`a b`",
    "`x``y`",
    "123",
    "dw.123",
    "`../t`",
    "(select 1)",
    "select",
    "'t'",
)
COLUMNS = ("dt", "hr", "DT", "x", "a.dt", "t.dt", "`dt`", "dw.t.dt", "day")
LITERALS = ("'2013-01-01'", "'2013-01-09'", "4", "04", "-1", "1e3", "NULL", "date '2013-01-02'", "x", "''", '"a b"')
ODD_LITERALS = (
    "'a/b=c:d'",
    "'x-SHARED-1'",
    "'..'",
    "'é\u202e'",
    "'\ue000'",
    "'a\\'b'",
    "'a' 'b'",
    "'a''b'",
    "now()",
    "r'\\d'",
    "1..2",
)
_SOUP = """
select from where insert into overwrite table partition alter add drop rename to set values with as and or not in
between exists join left on union all group by order limit create view if truncate merge when matched then update
delete lateral case end over window pivot map array struct ( ) ( ) , , . = < >= ' \\" ` ; -- /* */ * - 1 04 1.5 null
dt hr t h dw dw.t '2013-01-01' \\ $ ${x} {{ }} [ ] : :: @ # % ! ? | & ~ é \u202e
"""
TOKENS = (*_SOUP.split(), "\x00", "\n", " ")


def statements(seed: int, count: int) -> Iterator[str]:
    """*count* texts, the same for the same *seed*."""
    dice = random.Random(seed)
    for _ in range(count):
        kind = dice.random()
        if kind < 0.2:
            yield " ".join(dice.choices(TOKENS, k=dice.randint(1, 30)))
        else:
            text = _shaped(dice, odd=0.3 if kind < 0.4 else 0.0)
            yield _broken(dice, text) if kind > 0.8 else text


def _shaped(dice: random.Random, odd: float) -> str:
    text = dice.choice(SHAPES)

    def one(usual: tuple[str, ...], unusual: tuple[str, ...]) -> str:
        return dice.choice(unusual if dice.random() < odd else usual)

    def condition(depth: int = 0) -> str:
        kind = dice.random()
        if depth < 4 and kind < 0.4:
            return f"({condition(depth + 1)} {dice.choice(['and', 'or'])} {condition(depth + 1)})"
        if depth < 4 and kind < 0.5:
            return f"not {condition(depth + 1)}"
        if kind < 0.7:
            return f"{dice.choice(COLUMNS)} in ({one(LITERALS, ODD_LITERALS)}, {one(LITERALS, ODD_LITERALS)})"
        sign = dice.choice(["=", "=", "<", ">=", "<>", "like", "<=>"])
        return f"{dice.choice(COLUMNS)} {sign} {one(LITERALS, ODD_LITERALS)}"

    def spec() -> str:
        columns = dice.choice([("dt",), ("dt",), ("dt", "hr"), ("hr",), ("hr", "dt"), ("dt", "dt"), ("x",)])
        return ", ".join(
            column if dice.random() < 0.1 else f"{column}{dice.choice('===<')}{one(LITERALS, ODD_LITERALS)}"
            for column in columns
        )

    while "{" in text:
        text = text.replace("{t}", one(TABLES, ODD_TABLES), 1).replace("{d}", dice.choice(("dw", "other", "`d`")), 1)
        text = text.replace("{c}", condition(), 1).replace("{s}", spec(), 1)
    return text


def _broken(dice: random.Random, text: str) -> str:
    """*text* after a few slips of the hand."""
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(text) + 1)
        slip = dice.random()
        if slip < 0.4:
            text = text[:at] + text[at + 1 :]
        elif slip < 0.8:
            text = f"{text[:at]}{dice.choice(TOKENS)} {text[at:]}"
        else:
            text = text[:at] + text[at + dice.randint(2, 8) :]
    return text
