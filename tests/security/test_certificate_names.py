"""Kafka's rules for the names of client certificates, with the examples of its documentation and tests."""

from __future__ import annotations

import pytest

from headrace.security.certificate_names import BadRule, CertificateNames

DUKE = "CN=Duke,OU=ServiceUsers,O=Org,C=US"
RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,"
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("name", "rules", "user"),
    [
        (DUKE, RULES, "default/Duke"),
        ("CN=duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", RULES, "default/duke@sme"),
        ("cn=WebUser,ou=x", RULES, "default/webuser"),
        ("OU=nobody", RULES, "default/OU=nobody"),
        (DUKE, "DEFAULT", f"default/{DUKE}"),
        (DUKE, "", f"default/{DUKE}"),
        (DUKE, r"RULE:^CN=(.*?),.*$/acme\/$1/U", None),
        (DUKE, r"RULE:^CN=(.*?),.*$/acme\/$1/", "acme/Duke"),
        ("CN=acme/root", "RULE:^CN=(.*)$/$1/", None),
        ("CN=x", "RULE:^O=(.*)$/$1/", None),
        (DUKE, " RULE:^CN=(?<who>.*?),.*$/$1/U , DEFAULT", "default/DUKE"),
    ],
)
def test_the_first_rule_that_fits_names_the_user(name: str, rules: str, user: str | None) -> None:
    found = CertificateNames(rules).user_of(name)
    assert (None if found is None else str(found)) == user


@pytest.mark.parametrize("rules", ["RULE:", "RULE:a/b", "default", "RULE:(/x/", "RULE:x/$1/", "RULE:a/b/X"])
def test_a_rule_that_cannot_be_read_is_one_sentence(rules: str) -> None:
    with pytest.raises(BadRule):
        CertificateNames(rules)
