"""The instance file as a JSON schema, for editors."""

import json

from resources.settings import Instance


def instance_schema_text() -> str:
    """Return the schema, draft 7, as it is stored in docs/instance.schema.json."""
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", **Instance.model_json_schema()}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
