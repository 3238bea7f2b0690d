"""The SQL that sqlglot reads here: Spark's and Hive's, in one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from sqlglot import TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel
from sqlglot.parsers.spark import SparkParser

if TYPE_CHECKING:
    from sqlglot import Token


class ScriptDialect(Spark):
    """Spark's, which contains Hive's, except that no first word hides the rest of its statement from the tokenizer.

    Hints are comments: they name no table that the query does not.
    """

    class Tokenizer(Spark.Tokenizer):
        COMMANDS: ClassVar[set[TokenType]] = set()
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            word: kind
            for word, kind in Spark.Tokenizer.KEYWORDS.items()
            if kind not in (TokenType.COMMAND, TokenType.HINT)
        }

    class Parser(SparkParser):
        COLON_IS_VARIANT_EXTRACT: ClassVar[bool] = True

        def validate_expression(self, expression: Any, args: list[Any] | None = None) -> Any:
            """How many arguments a function takes is for the engine to say; AND and OR, functions here, have two."""
            if isinstance(expression, exp.Func) and not isinstance(expression, exp.Binary):
                return expression
            return super().validate_expression(expression, args)


def expression(tokens: list[Token], text: str) -> exp.Expr | None:
    """The tree of *tokens* of *text*; None where they are not one expression."""
    try:
        (tree,) = ScriptDialect().parser(error_level=ErrorLevel.IMMEDIATE).parse(tokens, text)
    except Exception:  # noqa: BLE001 - some input breaks the parser itself
        return None
    return tree
