"""The rules as somebody at home in pandas writes them, for the comparison in `resolution`.

In a module of its own, because pandas is installed for this process alone.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # ty: ignore[import-not-found]  (installed by `make bench` alone)

LATER_FIELDS = ("directory_user_sam_account_name", "directory_user_surname")
COUNTS = ["day", "document_hostname", "document_username", "events"]


def resolve(home: str) -> Callable[[], dict[str, Any]]:
    """From the stored tables to decisions_of_pandas.parquet."""
    folder = Path(home) / "tables" / "bench"

    def timed() -> dict[str, Any]:
        pairs = _pairs(folder)
        decisions = _decisions(pairs, folder)
        decisions.to_parquet(folder / "decisions_of_pandas.parquet", index=False)
        return {"decisions": len(decisions)}

    return timed


def _pairs(folder: Path) -> pd.DataFrame:
    """Events of each pair of names, spelled as the documents spell them, and the first and the last day."""
    counts = pd.read_parquet(folder / "logon_counts", columns=COUNTS)
    counts["day"] = pd.to_datetime(counts["day"])
    names = ["document_hostname", "document_username"]
    pairs = counts.groupby(names, sort=False).agg(
        events=("events", "sum"), first_seen=("day", "min"), last_seen=("day", "max")
    )
    return pairs.reset_index()


def _normalised(names: pd.Series) -> pd.Series:
    normalised = names.str.lower().str.normalize("NFC").str.strip()
    return normalised.mask(normalised.isin(["", "-"]))


def _folded_user(names: pd.Series) -> pd.Series:
    return _normalised(names.str.replace(r"(?s)^.*\\|@.*$", "", regex=True))


def _excluded(names: pd.Series) -> pd.Series:
    return names.str.startswith("svc_", na=False) | names.str.endswith("$", na=False)


def _decisions(pairs: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Rows of owner_decisions, but for the columns that are the same in all of them."""
    users = pd.DataFrame({"document_username": pairs["document_username"].unique()})
    users["username"] = _folded_user(users["document_username"])
    users = users[
        ~_excluded(users["username"]) & ~_excluded(_normalised(users["document_username"]))
    ].dropna()
    hosts = pd.DataFrame({"document_hostname": pairs["document_hostname"].unique()})
    hosts["hostname"] = _normalised(hosts["document_hostname"])
    hosts = hosts.dropna()

    subjects, names = _subjects(hosts, folder)
    spelled = hosts.merge(names, on="hostname")[["document_hostname", "subject"]].drop_duplicates()
    totals = (
        pairs.merge(users, on="document_username")
        .merge(spelled, on="document_hostname")
        .groupby(["subject", "username"], sort=False)
        .agg(events=("events", "sum"), first_seen=("first_seen", "min"), last_seen=("last_seen", "max"))
        .reset_index()
        .sort_values(["subject", "events", "username"], ascending=[True, False, True])
    )
    by_subject = totals.groupby("subject")
    leaders = totals[by_subject.cumcount() == 0].set_index("subject")
    leaders["total_events"] = by_subject["events"].sum()
    leaders["user_count"] = by_subject.size()
    runners_up = totals[by_subject.cumcount() == 1].set_index("subject")[["username", "events"]]
    found = subjects.join(leaders).join(runners_up.add_prefix("runner_up_"))
    found = found[found["host_id"].notna() | found["total_events"].notna()]
    found[["events", "total_events", "user_count"]] = (
        found[["events", "total_events", "user_count"]].fillna(0).astype("int64")
    )
    found["share"] = found["events"] / found["total_events"].replace(0, None)
    return _judged(found.merge(_candidates(folder), on="username", how="left"))


def _subjects(hosts: pd.DataFrame, folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What is decided about, by its number; and the names of each."""
    assets = pd.read_parquet(
        folder / "inventory_hosts.parquet", columns=["host_id", "hostnames", "owner_ids"]
    )
    assets = assets.reset_index(names="subject")
    names = assets[["subject", "hostnames"]].explode("hostnames").dropna()
    names = names.assign(hostname=_normalised(names["hostnames"].astype("str")))[
        ["subject", "hostname"]
    ].dropna()
    assets = assets.set_index("subject").assign(hostname=names.groupby("subject")["hostname"].first())
    unlisted = hosts.loc[~hosts["hostname"].isin(names["hostname"]), ["hostname"]].drop_duplicates()
    unlisted.index = pd.RangeIndex(len(assets), len(assets) + len(unlisted), name="subject")
    names = pd.concat([names, unlisted.reset_index()], ignore_index=True)
    unlisted = unlisted.assign(host_id=None, owner_ids=[[]] * len(unlisted))
    return pd.concat([assets.drop(columns="hostnames"), unlisted]), names.drop_duplicates()


def _candidates(folder: Path) -> pd.DataFrame:
    """The user assets that each name may stand for: username, matched_by, candidate_ids."""
    fields = {"user_email": "user_value", **dict.fromkeys(LATER_FIELDS)}
    users = pd.read_parquet(folder / "inventory_users.parquet")
    known = []
    for place, (field, column) in enumerate(fields.items()):
        values = users[["user_id", column or field]].explode(column or field).dropna()
        names = _folded_user(values[column or field].astype("str"))
        known.append(
            pd.DataFrame(
                {"user_id": values["user_id"], "username": names, "matched_by": field, "place": place}
            )
        )
    known = pd.concat(known).dropna()
    known = known[known["place"] == known.groupby("username")["place"].transform("min")]
    known = known.drop_duplicates(["username", "user_id"]).sort_values("user_id")
    return (
        known.groupby("username")
        .agg(matched_by=("matched_by", "first"), candidate_ids=("user_id", list))
        .reset_index()
    )


def _judged(found: pd.DataFrame) -> pd.DataFrame:
    """Evidence, match and action of each host."""
    found["evidence"] = np.select(
        [
            found["hostname"].isna(),
            found["total_events"] == 0,
            found["user_count"] == 1,
            100 * found["events"] > 60 * found["total_events"],
        ],
        ["no_hostname", "no_logons", "single_user", "majority"],
        "no_majority",
    )
    named = found["evidence"].isin(["single_user", "majority"])
    number = found["candidate_ids"].str.len().fillna(0)
    found["match"] = np.select(
        [number == 1, number > 1], ["matched", "ambiguous_user"], default="no_user_asset"
    )
    found["match"] = found["match"].where(named)
    found["matched_by"] = found["matched_by"].where(named)
    found["resolved_owner"] = found["candidate_ids"].str[0].where(found["match"] == "matched")
    owners = found["owner_ids"].str.join(",")
    found["existing_owner"] = owners.mask(owners == "")
    resolved = found["resolved_owner"].notna()
    found["action"] = np.select(
        [
            found["host_id"].isna(),
            resolved & found["existing_owner"].isna(),
            resolved & (found["resolved_owner"] == found["existing_owner"]),
            resolved,
            found["existing_owner"].notna(),
        ],
        ["no_host", "write", "agree", "conflict", "keep"],
        "none",
    )
    return found.sort_values(["hostname", "host_id"]).drop(columns=["owner_ids", "candidate_ids"])
