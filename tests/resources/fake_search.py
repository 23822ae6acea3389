"""A search service over documents in memory: as much of `_search` as this project asks for."""

import json
from collections import Counter
from datetime import datetime
from itertools import product
from typing import Any

from tests.resources.http_stub import Reply, Stub


class FakeSearch(Stub):
    """Answers searches of these documents, which tests may change; None: the pattern matches no index."""

    def __init__(self, documents=()):
        self.documents = list(documents)
        super().__init__(self.reply)

    def reply(self, request):
        if "Authorization" not in request.headers:
            return Reply(b"", 401)
        return Reply(json.dumps(self.found(json.loads(request.body))).encode())

    def found(self, body):
        matching = [one for one in self.documents or () if fits(one, body["query"])]
        answer = {"timed_out": False, "_shards": {"total": int(self.documents is not None), "failed": 0}}
        if body["track_total_hits"]:
            answer["hits"] = {"total": {"value": len(matching), "relation": "eq"}}
        if self.documents is not None:
            answer["aggregations"] = aggregated(matching, body["aggs"])
        return answer


def values(document, field):
    """The values of a field, by its dotted name."""
    if field == "_index":
        return ["logs"]
    found = document.get(field, document)
    for part in field.split(".") if field not in document else ():
        found = found.get(part) if isinstance(found, dict) else None
    return found if isinstance(found, list) else [] if found is None or isinstance(found, dict) else [found]


def milliseconds(text):
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def fits(document, query):
    ((kind, what),) = query.items()
    match kind:
        case "bool":
            refused = any(fits(document, one) for one in what.get("must_not", ()))
            refused |= "should" in what  # only text fields allow what is asked so
            return not refused and all(fits(document, one) for one in what.get("filter", ()))
        case "query_string":
            terms = [] if what["query"] == "*" else what["query"].split(" AND ")
            return all(term.partition(":")[2] in values(document, term.partition(":")[0]) for term in terms)
        case "range":
            ((field, bounds),) = what.items()
            instants = map(milliseconds, values(document, field))
            return any(bounds["gte"] <= instant < bounds["lt"] for instant in instants)
        case "exists":
            return bool(values(document, what["field"]))
        case "match_all" | "match_none":
            return kind == "match_all"
    raise NotImplementedError(kind)


def aggregated(documents, aggregations):
    return {name: one_aggregation(documents, what) for name, what in aggregations.items()}


def one_aggregation(documents, aggregation):
    (kind,) = aggregation.keys() - {"aggs"}
    what, below = aggregation[kind], aggregation.get("aggs", {})
    match kind:
        case "filters":
            some = [[one for one in documents if fits(one, query)] for query in what["filters"]]
            return {"buckets": [{"doc_count": len(one), **aggregated(one, below)} for one in some]}
        case "filter" | "missing":
            wanted = what if kind == "filter" else {"bool": {"must_not": [{"exists": what}]}}
            inside = [one for one in documents if fits(one, wanted)]
            return {"doc_count": len(inside), **aggregated(inside, below)}
        case "terms":
            names = {value for one in documents for value in values(one, what["field"])}
            names &= set(what.get("include", names))
            holding = {name: [d for d in documents if name in values(d, what["field"])] for name in names}
            buckets: list[dict[str, Any]] = [
                {"key": name, "doc_count": len(inside), **aggregated(inside, below)}
                for name, inside in sorted(holding.items())
            ]
            for by in what.get("order", ()):
                buckets.sort(key=lambda one: one[by].get("value", one[by].get("doc_count")), reverse=True)
            return {"buckets": buckets[: what.get("size", 10)]}
        case "composite":
            return composite(documents, what)
    return metric(documents, kind, what)


def metric(documents, kind, what):
    match kind:
        case "max" | "min":
            times = [milliseconds(at) for one in documents for at in values(one, what["field"])]
            return {"value": (max if kind == "max" else min)(times, default=None)}
        case "cardinality":
            return {"value": len({value for one in documents for value in values(one, what["field"])})}
        case "value_count":
            return {"value": sum(len(set(values(one, what["field"]))) for one in documents)}
        case "top_hits":
            assert what["fields"] == ["*"]
            hit = {"_index": "logs"}
            return {
                "hits": {"hits": [hit | {"fields": dict(leaves(one))} for one in documents[: what["size"]]]}
            }
    raise NotImplementedError(kind)


def leaves(document, path=""):
    """The values of each field of a document, by dotted name."""
    for name, value in document.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value if isinstance(value, list) else [value]


def composite(documents, what):
    """Combinations of values in order, from the one after `after` on; none comes first."""
    sources = [(name, source["terms"]) for one in what["sources"] for name, source in one.items()]

    def order(key):
        return [(value is not None, str(value)) for value in key]

    keys = Counter(
        key
        for one in documents
        for key in product(
            *(set(values(one, by["field"])) or ({None} if by["missing_bucket"] else ()) for _, by in sources)
        )
    )
    after = what.get("after")
    left = [key for key in sorted(keys, key=order) if not after or order(key) > order(after.values())]
    named = [{name: value for (name, _), value in zip(sources, key, strict=True)} for key in left]
    page = [
        {"key": one, "doc_count": keys[key]} for one, key in zip(named[: what["size"]], left, strict=False)
    ]
    return {"buckets": page, **({"after_key": page[-1]["key"]} if page else {})}
