"""Matches instances of tasks in mapped task groups, as Airflow's scheduler does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

Instance = tuple[Any, int]
"""A task, and the map index of its instance: -1 if it is not mapped."""


def together(one: Instance, other: Instance, count: Callable[[Any], int]) -> bool:
    """Whether both have the same index in their innermost common mapped task group. True if there is no such group.

    :param count: returns the number of a task's instances.
    """
    groups, their_groups = ([group.group_id for group in task.iter_mapped_task_groups()] for task, _ in (one, other))
    common = next((group for group in groups if group in their_groups), None)
    if common is None or one[1] < 0 or other[1] < 0:
        return True
    if groups[0] == their_groups[0]:
        return one[1] == other[1]
    if common not in (groups[0], their_groups[0]):
        return True  # no task here shows how many indexes the common group has
    outer, inner = (one, other) if common == groups[0] else (other, one)
    # In a group inside another, each index of the outer group has a block of indexes.
    blocks, indexes = count(outer[0]), count(inner[0])
    return not blocks or indexes % blocks > 0 or inner[1] * blocks // max(indexes, 1) == outer[1]
