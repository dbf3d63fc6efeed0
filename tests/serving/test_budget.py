"""Amounts that requests hold together."""

from __future__ import annotations

import asyncio

from whet.serving.budget import Budget


def test_requests_wait_in_order_and_give_back_what_they_held():
    async def story() -> list[str]:
        budget, seen, leave = Budget(10), [], asyncio.Event()

        async def visit(name: str, amount: int) -> None:
            async with budget.hold(amount):
                seen.append(name)
                assert budget.free >= 0
                await leave.wait()

        tasks = [asyncio.create_task(visit(*each)) for each in (("a", 6), ("b", 99), ("c", 1), ("d", 4))]
        await asyncio.sleep(0.005)
        assert seen == ["a"], "c waits for b, which came first"
        tasks[1].cancel()
        await asyncio.sleep(0.005)
        assert seen == ["a", "c"]
        leave.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert budget.free == 10
        return seen

    assert asyncio.run(asyncio.wait_for(story(), 10)) == ["a", "c", "d"]
