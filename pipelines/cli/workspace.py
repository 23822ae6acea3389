"""`asset-owners workspace`: a workspace file for Dagster that divides the instances among code locations."""

import yaml


def workspace(locations: int) -> None:
    """Print the file. The instances that a location holds follow from their names and the number alone."""
    parts = [(part, f"part_{part}_of_{locations}") for part in range(1, locations + 1)]
    targets = [
        {
            "module_name": "pipelines.definitions",
            "attribute": attribute,
            "location_name": f"asset-owners-{part}-of-{locations}",
        }
        for part, attribute in parts
    ]
    print(f"# Written by `asset-owners workspace {locations}`.")
    print(yaml.safe_dump({"load_from": [{"python_module": one} for one in targets]}, sort_keys=False), end="")
