"""Decisions about rules: Kafka's answers to a thousand questions, and a naive model's to any."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.security.acl_filter import AclFilter
from headrace.security.acls import Acl, Operation, PatternType, Permission, ResourceType, plain_host
from headrace.security.rules import AccessQuestion, Rules, Why
from tests.security.acl_questions import ALICE, BOB, HERE, PREFIXED, allow, ask, cases, deny


def test_a_thousand_questions_have_kafkas_answers() -> None:
    questions = cases()
    assert len(questions) >= 1_000
    wrong = []
    for case in questions:
        rules = Rules(case.rules, allow_if_no_rule=case.allow_if_no_rule)
        rules.set_super_users(case.super_users)
        if rules.decide(case.question).allowed is not case.answer:
            wrong.append(case)
    assert not wrong


NAMES = st.sampled_from(["", "a", "ab", "abc", "b", "*", "a*"])
ACLS = st.builds(
    Acl,
    resource_type=st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    name=NAMES.filter(bool),
    pattern=st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    principal=st.sampled_from([ALICE, BOB, "User:*"]),
    host=st.sampled_from(["*", HERE, "::1"]),
    operation=st.sampled_from([Operation.ALL, Operation.READ, Operation.DESCRIBE, Operation.ALTER_CONFIGS]),
    permission=st.sampled_from([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
)
QUESTIONS = st.builds(
    AccessQuestion,
    principal=st.sampled_from([ALICE, BOB, "User:eve"]),
    host=st.sampled_from([HERE, "::1", "10.9.9.9"]),
    operation=st.sampled_from([Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.WRITE]),
    resource_type=st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    name=NAMES,
)


def naive(rules: list[Acl], question: AccessQuestion, allow_if_no_rule: bool) -> bool:
    """Every rule is looked at, one after the other."""
    about = [
        rule
        for rule in rules
        if rule.resource_type == question.resource_type
        and (
            question.name.startswith(rule.name)
            if rule.pattern == PatternType.PREFIXED
            else rule.name in ("*", question.name)
        )
    ]
    if not about:
        return allow_if_no_rule
    implied = {
        Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
        Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
    }
    fits = [
        rule for rule in about if rule.principal in ("User:*", question.principal) and rule.host in ("*", question.host)
    ]
    if any(r.permission == Permission.DENY and r.operation in (Operation.ALL, question.operation) for r in fits):
        return False
    fine = {Operation.ALL, question.operation} | implied.get(question.operation, set())
    return any(rule.permission == Permission.ALLOW and rule.operation in fine for rule in fits)


@given(rules=st.lists(ACLS, max_size=12), question=QUESTIONS, allow_if_no_rule=st.booleans())
def test_the_index_decides_as_a_look_at_every_rule(
    rules: list[Acl], question: AccessQuestion, allow_if_no_rule: bool
) -> None:
    decision = Rules(rules, allow_if_no_rule=allow_if_no_rule).decide(question)
    assert decision.allowed is naive(rules, question, allow_if_no_rule)
    if decision.why is Why.ALLOWED or decision.why is Why.DENIED:
        assert decision.rule in rules


@given(rules=st.lists(ACLS, max_size=8), gone=st.lists(ACLS, max_size=8), question=QUESTIONS)
def test_rules_that_come_and_go_leave_nothing_behind(
    rules: list[Acl], gone: list[Acl], question: AccessQuestion
) -> None:
    changed = Rules([*gone, *rules])
    for rule in gone:
        changed.remove(rule)
    kept = [rule for rule in rules if rule not in gone]
    assert set(changed) == set(kept)
    assert changed.decide(question)[:2] == Rules(kept).decide(question)[:2]


@given(rules=st.lists(ACLS, max_size=6), principal=st.sampled_from([ALICE, BOB]))
def test_any_topic_is_allowed_where_one_is(rules: list[Acl], principal: str) -> None:
    """The short-cut of KIP-679 never says no where some name is allowed by a rule for that very operation."""
    index = Rules(rules)
    names = ["a", "ab", "abc", "b", "*", "zz", "abcd", "a*b"]
    some = [
        name
        for name in names
        if index.decide(AccessQuestion(principal, HERE, Operation.READ, ResourceType.TOPIC, name)).allowed
    ]
    if some:
        assert index.decide_for_any(principal, HERE, Operation.READ, ResourceType.TOPIC)


def test_a_prefix_that_is_denied_takes_what_lies_in_it() -> None:
    write = Operation.WRITE
    where = (ALICE, HERE, write, ResourceType.TOPIC)
    assert Rules([allow(write, name="foo")]).decide_for_any(*where)
    assert Rules([allow(write, name="foo", pattern=PREFIXED)]).decide_for_any(*where)
    assert not Rules([allow(write, name="foo"), deny(write, name="foo")]).decide_for_any(*where)
    assert not Rules([allow(write, name="foo"), deny(write, name="f", pattern=PREFIXED)]).decide_for_any(*where)
    assert not Rules([allow(write, name="*"), deny(write, name="*")]).decide_for_any(*where)
    assert Rules([allow(write, name="*"), deny(write, name="f", pattern=PREFIXED)]).decide_for_any(*where)
    assert not Rules([allow(Operation.READ, name="foo")]).decide_for_any(*where)


def test_a_decision_names_its_rule() -> None:
    rules = Rules([allow(name="ord", pattern=PREFIXED), deny(principal="User:*", host="10.0.0.9")])
    assert rules.decide(ask()) == (True, Why.ALLOWED, allow(name="ord", pattern=PREFIXED))
    denied = rules.decide(ask(host="10.0.0.9"))
    assert (denied.allowed, str(denied.rule)) == (False, "DENY User:* READ on TOPIC orders from 10.0.0.9")
    assert rules.decide(ask(Operation.WRITE)) == (False, Why.NO_RULE_FITS, None)


FILTERS = [
    (AclFilter(), "a b c d"),
    (AclFilter(name="orders"), "a b"),
    (AclFilter(name="orders", pattern=PatternType.LITERAL), "a"),
    (AclFilter(name="orders", pattern=PatternType.PREFIXED), "b"),
    (AclFilter(name="orders", pattern=PatternType.MATCH), "a b c"),
    (AclFilter(name="orders-eu", pattern=PatternType.MATCH), "b c"),
    (AclFilter(name="orders-eu", pattern=PatternType.ANY), ""),
    (AclFilter(name="*", pattern=PatternType.LITERAL), "c"),
    (AclFilter(resource_type=ResourceType.GROUP), "d"),
    (AclFilter(principal=BOB), "d"),
    (AclFilter(host="10.0.0.1"), "b"),
    (AclFilter(operation=Operation.WRITE), "b"),
    (AclFilter(operation=Operation.ALL), ""),
    (AclFilter(permission=Permission.DENY), "c"),
]


@pytest.mark.parametrize(("wanted", "found"), FILTERS)
def test_a_filter_means_these_rules(wanted: AclFilter, found: str) -> None:
    rules = {
        "a": allow(),
        "b": allow(Operation.WRITE, pattern=PREFIXED, host=HERE),
        "c": deny(name="*"),
        "d": allow(resource_type=ResourceType.GROUP, name="readers", principal=BOB),
    }
    assert [name for name, rule in rules.items() if wanted.matches(rule)] == found.split()


def test_one_address_has_one_form() -> None:
    assert plain_host("::ffff:10.0.0.1") == "10.0.0.1"
    assert plain_host("0:0:0:0:0:0:0:1") == plain_host("::1") == "::1"
    assert plain_host("*") == "*"
