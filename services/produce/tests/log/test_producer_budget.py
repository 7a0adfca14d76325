"""Producer ids of a whole process: what all tables hold is bounded, and who makes many gives way."""

from kafscale.produce.log.producer_budget import ProducerBudget
from kafscale.produce.log.producers import BATCH_BYTES, PRODUCER_BYTES, ProducerTable

ONE = PRODUCER_BYTES + BATCH_BYTES


def fill(table: ProducerTable, count: int, *, first: int = 0, committed: bool = True) -> int:
    """New producers with a batch each; how many got one."""
    for number in range(first, first + count):
        if not table.make_room(number):
            return number - first
        table.record(number, 0, 0, 0, number, 0, wall_ms=0, committed=number + 1 if committed else 0)
    return count


def tables(count: int, budget: ProducerBudget) -> list[ProducerTable]:
    made = [ProducerTable() for _ in range(count)]
    for table in made:
        table.join(budget)
    return made


def test_producer_ids_without_end_take_them_from_their_own_partition() -> None:
    budget = ProducerBudget(100 * ONE)
    flooded, quiet = tables(2, budget)
    fill(quiet, 20)
    assert fill(flooded, 5_000) == 5_000
    assert len(quiet) == 20
    assert len(flooded) == 80
    assert budget.used_bytes == 100 * ONE == flooded.bytes + quiet.bytes
    assert (budget.ids, budget.evicted) == (100, 4_920)


def test_who_is_beyond_its_share_takes_no_room_from_one_that_has_more() -> None:
    budget = ProducerBudget(100 * ONE)
    larger, growing, small = tables(3, budget)
    fill(larger, 50)
    fill(growing, 40)
    fill(small, 10)
    fill(growing, 20, first=40)
    assert (len(larger), len(growing), len(small)) == (50, 40, 10)


def test_a_partition_within_its_share_is_given_room_by_the_largest() -> None:
    budget = ProducerBudget(100 * ONE)
    large, small, other = tables(3, budget)
    fill(large, 90)
    fill(other, 10)
    fill(small, 30)
    assert (len(small), len(other)) == (30, 10)
    assert len(large) <= 60
    assert budget.used_bytes <= 100 * ONE


def test_the_process_is_bounded_though_each_of_many_partitions_has_few() -> None:
    budget = ProducerBudget(100 * ONE)
    many = tables(50, budget)
    for table in many:
        fill(table, 10)
    assert budget.used_bytes <= 100 * ONE
    assert all(len(table) >= 1 for table in many)


def test_where_all_is_on_its_way_a_new_batch_is_refused() -> None:
    budget = ProducerBudget(10 * ONE)
    first, second = tables(2, budget)
    assert fill(first, 50, committed=False) == 10
    assert fill(second, 1) == 0
    first.committed(1 << 40)
    assert fill(second, 1) == 1


def test_a_table_that_leaves_gives_its_bytes_back() -> None:
    budget = ProducerBudget(100 * ONE)
    (table,) = tables(1, budget)
    fill(table, 10)
    table.leave()
    assert (budget.used_bytes, budget.ids) == (0, 0)
    fill(table, 1, first=50)
    table.leave()
    assert budget.used_bytes == 0


def test_one_that_is_on_its_way_is_passed_over() -> None:
    budget = ProducerBudget(30 * ONE)
    largest, large, small = tables(3, budget)
    fill(largest, 17, committed=False)
    fill(large, 13)
    assert fill(small, 5) == 5
    assert len(largest) == 17
    assert len(large) <= 8


class Looked(ProducerTable):
    """Counts how often one asks whether it can forget a producer."""

    looks = 0

    @property
    def evictable(self) -> bool:
        Looked.looks += 1
        return super().evictable


def test_a_batch_beyond_the_budget_looks_at_few_of_many_partitions() -> None:
    budget = ProducerBudget(4_000 * ONE)
    many = [Looked() for _ in range(1_000)]
    for table in many:
        table.join(budget)
        fill(table, 4)
    Looked.looks = 0
    for table in many:
        assert fill(table, 2, first=4) == 2
    assert budget.evicted == 2_000
    assert Looked.looks < 10 * 2_000
