"""Lua code shared by several scripts."""

BELOW = """
        local function below(one, other) return #one < #other or (#one == #other and one < other) end
"""
"""Whether an offset is below another, as text: Lua's numbers are exact up to 2^53 only, and those of streams go on."""
