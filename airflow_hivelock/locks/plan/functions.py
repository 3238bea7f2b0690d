"""Finds deterministic expressions, because an engine hands conditions down only through those.

An unknown function, such as a user's own, counts as nondeterministic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from airflow_hivelock.locks.plan.rewrite import TOO_DEEP

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAMES = frozenset(
    """
    abs acos acosh add_months aggregate any approx_count_distinct approx_percentile array array_append array_compact
    array_contains array_distinct array_except array_insert array_intersect array_join array_max array_min
    array_position array_prepend array_remove array_repeat array_size array_sort array_union arrays_overlap
    arrays_zip ascii asin asinh atan atan2 atanh avg base64 bigint bin binary bit_and bit_count bit_get bit_length
    bit_or bit_xor bool_and bool_or boolean bround btrim cardinality cast cbrt ceil ceiling char char_length
    character_length chr coalesce collate concat concat_ws contains conv convert_timezone corr cos cosh cot count
    count_if covar_pop covar_samp crc32 curdate current_catalog current_database current_date current_schema
    current_timestamp current_timezone current_user date date_add date_diff date_format date_from_unix_date
    date_part date_sub date_trunc dateadd datediff datepart day dayname dayofmonth dayofweek dayofyear decimal
    decode degrees div double e element_at elt encode endswith equal_null every exists exp explode explode_outer
    expm1 extract factorial filter find_in_set flatten float floor forall format_number format_string from_csv
    from_json from_unixtime from_utc_timestamp get get_json_object getbit greatest grouping grouping_id hash hex
    histogram_numeric hour hypot if ifnull ilike in initcap inline inline_outer instr int isnan isnotnull isnull
    json_array_length json_object_keys json_tuple kurtosis last_day lcase least left len length levenshtein like ln
    localtimestamp locate log log10 log1p log2 lower lpad ltrim make_date make_interval make_timestamp map
    map_concat map_contains_key map_entries map_filter map_from_arrays map_from_entries map_keys map_values
    map_zip_with mask max max_by md5 mean median min min_by minute mod month months_between named_struct nanvl
    negative next_day not now nullif nvl nvl2 octet_length overlay parse_url percentile percentile_approx
    percentile_cont percentile_disc pi pmod posexplode posexplode_outer position positive pow power printf quarter
    quote radians reduce regexp regexp_count regexp_extract regexp_extract_all regexp_instr regexp_like
    regexp_replace regexp_substr repeat replace reverse right rint rlike round rpad rtrim second sentences sequence
    sha sha1 sha2 shiftleft shiftright shiftrightunsigned sign signum sin sinh size skewness slice smallint some
    sort_array soundex space split split_part sqrt stack startswith std stddev stddev_pop stddev_samp str_to_map
    string struct substr substring substring_index sum tan tanh timestamp timestamp_micros timestamp_millis
    timestamp_seconds tinyint to_binary to_char to_csv to_date to_json to_number to_timestamp to_unix_timestamp
    to_utc_timestamp to_varchar transform transform_keys transform_values translate trim trunc try_add try_avg
    try_cast try_divide try_element_at try_multiply try_subtract try_sum try_to_binary try_to_date try_to_number
    try_to_timestamp typeof ucase unbase64 unhex unix_date unix_micros unix_millis unix_seconds unix_timestamp upper
    url_decode url_encode var_pop var_samp variance version weekday weekofyear width_bucket xpath xpath_boolean
    xpath_double xpath_float xpath_int xpath_long xpath_number xpath_short xpath_string xxhash64 year zip_with
    """.split()  # noqa: SIM905
)
"""Functions of Spark 4.3 and Hive, without those that Spark 3 or Hive treats as nondeterministic: collect_list."""

_SYNTAX = (
    *(exp.And, exp.Or, exp.Not, exp.Case, exp.If, exp.Cast, exp.TryCast, exp.Coalesce, exp.Concat, exp.Exists),
    *(exp.Array, exp.Ceil, exp.Chr, exp.Collate, exp.CurrentDate, exp.CurrentTimestamp, exp.CurrentUser, exp.Decode),
    *(
        exp.DecodeCase,
        exp.Extract,
        exp.Floor,
        exp.Initcap,
        exp.Overlay,
        exp.Quantile,
        exp.ApproxQuantile,
        exp.RegexpLike,
    ),
    *(exp.StrPosition, exp.StrToDate, exp.StrToTime, exp.Substring, exp.TimeStrToTime, exp.Transform, exp.Trim),
    exp.TsOrDsToDate,
)
"""Functions that have no name in sqlglot's tree, because they have their own grammar or replace another function."""

_PARTS = (
    *(exp.Alias, exp.AtTimeZone, exp.Between, exp.Binary, exp.Boolean, exp.Bracket, exp.Column, exp.DataType),
    *(
        exp.DataTypeParam,
        exp.Distinct,
        exp.Filter,
        exp.HexString,
        exp.Identifier,
        exp.In,
        exp.Interval,
        exp.IntervalSpan,
    ),
    *(
        exp.Is,
        exp.Lambda,
        exp.Literal,
        exp.Null,
        exp.Ordered,
        exp.Paren,
        exp.PropertyEQ,
        exp.RawString,
        exp.Slice,
        exp.Star,
    ),
    *(exp.Tuple, exp.Unary, exp.Var, exp.WithinGroup),
)
"""The other parts of expressions."""

_QUERY_PARTS = (
    *(exp.From, exp.Group, exp.Having, exp.Join, exp.Limit, exp.Order, exp.Select, exp.SetOperation, exp.Subquery),
    *(exp.Table, exp.TableAlias, exp.Where),
)


def deterministic(nodes: Iterable[exp.Expr], text: str) -> bool:
    """Whether each of *nodes*, expressions of the statement *text*, is certainly deterministic."""
    return all(_known(each, text) for node in nodes for each in node.walk())


def _known(node: exp.Expr, text: str) -> bool:
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Func):
        return False  # a user's own function
    if isinstance(node, exp.Func):
        if (start := node.meta.get("start")) is None:
            return isinstance(node, _SYNTAX)
        name = text[start : node.meta["end"] + 1].strip("`").lower()
        now = isinstance(node, exp.StrToUnix) and isinstance(node.this, exp.CurrentTimestamp)  # unix_timestamp()
        return name in _NAMES and not now
    if isinstance(node, exp.Identifier):
        return node.name != TOO_DEEP
    return isinstance(node, _PARTS + _QUERY_PARTS)
