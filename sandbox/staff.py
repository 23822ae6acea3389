"""The people of the sandbox's company: their user assets, and the accounts that logs know them by.

What an account resolves to is decided here, where the user assets are made, by the fields that decide
(rules 2.1); nothing is looked up.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, count
from typing import Any, Literal, NamedTuple
from unicodedata import normalize

from sandbox.logons import DOMAIN

Match = Literal["matched", "no_user_asset", "ambiguous_user"]

DEPARTMENTS = (
    *("Engineering", "Finance", "Human Resources", "Legal"),
    *("Logistics", "Marketing", "Research", "Sales"),
)

REGULAR_PEOPLE = 185
_FIRST_NAMES = """
    Adam Agnes Ahmed Alice Amir Anna Astrid Ben Carla Chloe Daniel Diego Elena Emeka Erik Fatima Felix
    Grace Hana Hugo Ines Ivan Jana Julia Karim Laura Leo Lina Marta Mehmet Mia Nadia Noah Olga Omar
    Paula Priya Rosa Samir Sofia Tom Vera Yusuf Zara
"""
_LAST_NAMES = """
    Adeyemi Alvarez Andersson Banerjee Becker Bianchi Carvalho Chen Costa Dubois Eriksson Evans Farouk
    Ferrari Gruber Haddad Hansen Horvat Ito Ivanov Jansen Kaya Keller Khan Kovacs Larsen Lehmann Lopez
    Marino Mazur Moreau Mwangi Nagy Nielsen Novak Okafor Olsen Patel Pereira Popescu Ramos Reyes Ricci
    Rossi Santos Sato Silva Singh Svoboda Tanaka Torres Varga Vogel Walsh Wang Zeman
"""
FIRST_NAMES, LAST_NAMES = _FIRST_NAMES.split(), _LAST_NAMES.split()


class Account(NamedTuple):
    """A name that people log on with, and which user asset it leads to (None unless exactly one does)."""

    name: str
    match: Match
    user_id: str | None = None


@dataclass(frozen=True)
class Staff:
    """User assets, and accounts by what becomes of them; `curious` are the hard ones, each by its story."""

    users: list[dict[str, Any]]
    regular: list[Account]
    unknown: list[Account]
    ambiguous: list[Account]
    curious: dict[str, Account]


def hire(rng: random.Random) -> Staff:
    """Return the whole staff, some 35 user assets more than regular people; the same for equal `rng`."""
    users: list[dict[str, Any]] = []
    numbers = count(1)

    def add(first: str, last: str, **fields: Any) -> str:
        """Add one user asset; `fields` replace what would follow from the names, None omits a field."""
        user_id = f"user-{next(numbers):04}"
        usual = {
            "user_email": f"{first}.{last}@{DOMAIN}".lower().replace(" ", ""),
            "directory_user_sam_account_name": f"{first[0]}{last}".lower().replace(" ", ""),
            "directory_user_surname": last,
            "directory_user_given_name": first,
            "user_department": rng.choices((*DEPARTMENTS, "", None), (*[1] * len(DEPARTMENTS), 0.4, 0.4))[0],
            "criticality": rng.choices(("low", "medium", "high", "", None), (4, 3, 1, 0.5, 0.5))[0],
        }
        kept = {name: value for name, value in (usual | fields).items() if value is not None}
        users.append({"id": user_id} | kept)
        return user_id

    regular = _regular(add, rng)
    ambiguous = _ambiguous(add)
    curious = _curious(add)
    for room in ("Meeting Room Oslo", "Meeting Room Lima", "Front Desk"):
        add(room, "-", user_email="", directory_user_sam_account_name="-")
    unknown = [
        Account(name, "no_user_asset")
        for name in ("ext.rmoore", "ext.tquinn", "c-1182", "c-2044", "trainee07")
    ]
    return Staff(users, regular, unknown, ambiguous, curious)


def _regular(add: Callable[..., str], rng: random.Random) -> list[Account]:
    """Add people with a short account of their own; every fifth logs on with the e-mail name."""
    accounts: list[Account] = []
    taken: set[str] = set()
    everybody = [(first, last) for first in FIRST_NAMES for last in LAST_NAMES]
    for first, last in rng.sample(everybody, REGULAR_PEOPLE):
        stem = f"{first[0]}{last}".lower()
        sam = next(name for name in chain([stem], (f"{stem}{n}" for n in count(2))) if name not in taken)
        taken.add(sam)
        user_id = add(first, last, directory_user_sam_account_name=sam)
        name = f"{first}.{last}".lower() if len(accounts) % 5 == 4 else sam
        accounts.append(Account(name, "matched", user_id))
    return accounts


def _ambiguous(add: Callable[..., str]) -> list[Account]:
    """Accounts that lead to several people: by surname, by account name, by e-mail address."""
    for first in ("Arthur", "Beth", "Cyril"):
        add(first, "Miller")
    for first in ("Dora", "Edgar"):
        add(first, "Schwarz", directory_user_sam_account_name=None)
    add("Thomas", "Fischer", directory_user_sam_account_name="tfischer")
    add("Tina", "Fischer", directory_user_sam_account_name="TFISCHER")
    add("Kim", "Leclerc", directory_user_sam_account_name="kleclerc")
    add(
        "Kim", "Leclerc", directory_user_sam_account_name="kleclerc-lab", user_email="kim.leclerc@lab.example"
    )
    return [Account(name, "ambiguous_user") for name in ("miller", "schwarz", "tfischer", "kim.leclerc")]


def _curious(add: Callable[..., str]) -> dict[str, Account]:
    """Accounts that lead to one person, each on a way of its own."""

    def account(name: str, user_id: str) -> Account:
        return Account(name, "matched", user_id)

    weber = add("Hanna", "Weber", user_email=f"Weber@{DOMAIN}", directory_user_sam_account_name="h1001")
    add("Gustav", "Weber", directory_user_sam_account_name="h1002")
    nash = add("Deana", "Nash", directory_user_sam_account_name="dean")
    add("Peter", "Dean")
    decomposed = normalize("NFD", "zoë.brontë")
    return {
        "e-mail address before surname": account("weber", weber),
        "account name before surname": account("dean", nash),
        "by account name only": account(
            "x4711", add("Ingrid", "Thorvaldsen", user_email=None, directory_user_sam_account_name="X4711")
        ),
        "by surname only": account(
            "okonkwo", add("Chidi", "Okonkwo", user_email=None, directory_user_sam_account_name=None)
        ),
        "by the second of two e-mail addresses": account(
            "paulo.quaresma",
            add("Paulo", "Quaresma", user_email=[f"pq@{DOMAIN}", f"Paulo.Quaresma@{DOMAIN}"]),
        ),
        "composed in the inventory, decomposed in the documents": account(
            normalize("NFD", "josé.garcía"),
            add("José", "García", directory_user_sam_account_name="josé.garcía"),
        ),
        "decomposed in the inventory, composed in the documents": account(
            "zoë.brontë", add("Zoë", "Brontë", user_email=None, directory_user_sam_account_name=decomposed)
        ),
        "letters beyond Latin-1 in capitals": account("ŁUKASZ.WÓJCIK", add("Łukasz", "Wójcik")),
        "a surname in Japanese characters": account(
            "山田",
            add("Taro", "山田", user_email=f"t.yamada@{DOMAIN}", directory_user_sam_account_name="tyamada"),
        ),
        "blanks around the account name": account(" nlindqvist ", add("Nils", "Lindqvist")),
    }
