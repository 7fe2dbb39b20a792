"""A quote in words, for the terminal; pure."""

from __future__ import annotations

from collections.abc import Callable

from rowmill.core.pricing.forecast import Forecast, times
from rowmill.core.pricing.quote import Estimate, Quote, Spread
from rowmill.observers.wording import duration, money, share


def forecast_line(forecast: Forecast) -> str:
    """What a run will cost, for all rows where their number is known, else for a thousand of them."""
    costs, of = forecast.total, ""
    if costs is None or forecast.rows is None:
        costs, of = times(forecast.row, 1000), "for each 1,000 rows"
    else:
        of = f"for {'' if forecast.is_counted else 'about '}{forecast.rows:,} rows"
    most = (
        f"at most {money(costs.most)}" if costs.most is not None else "at most unknown, as nothing limits the answers"
    )
    return f"cost: about {money(costs.likely)} {of} (at least {money(costs.least)}, {most}; retries cost more)"


def quote_lines(quote: Quote) -> list[str]:
    """A table: what was sampled, tokens a row, and cost and time with their 95 % intervals."""
    lines = [f"quote from {quote.sampled_rows:,} of {quote.rows:,} rows, with 95 % intervals"]
    lines.append(f"  success        {_range(quote.success_rate, share)}")
    lines.append(f"  input tokens   {_tokens(quote.input_tokens, quote.total_input_tokens)}")
    lines.append(f"  output tokens  {_tokens(quote.output_tokens, quote.total_output_tokens)}")
    lines.append(f"  cost, all      {_range(quote.cost_usd, money)}")
    lines.append(f"  cost, rest     {_range(quote.rest_cost_usd, money)}")
    lines.append(f"  time, rest     {_range(quote.rest_seconds, duration)}")
    if quote.unknown_costs and quote.cost_usd is not None:
        lines.append(f"  the cost of {quote.unknown_costs:,} sampled rows is unknown; the others stand in for them")
    return lines


def _range(estimate: Estimate | None, words: Callable[[float], str]) -> str:
    if estimate is None:
        return "unknown"
    return f"{words(estimate.value)} ({words(estimate.low)} to {words(estimate.high)})"


def _tokens(spread: Spread | None, total: Estimate | None) -> str:
    if spread is None or total is None:
        return "unknown"
    row = f"{spread.mean:,.1f} a row (\N{PLUS-MINUS SIGN} {spread.deviation:,.1f})"
    return f"{row}, {_range(total, '{:,.0f}'.format)} in all"
