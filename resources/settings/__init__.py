"""Settings in instance files (`models` has their keys, `files` reads them) and in the environment."""

from resources.settings.environment import (
    analysts_group,
    check_environment,
    executor,
    home,
    instances_folder,
    journal_url,
    logs_as_json,
    plain_folder,
    report_url,
    system_user,
    tables_location,
    ui_url,
    without_password,
)
from resources.settings.files import (
    CALLED_AS,
    BrokenInstance,
    changes_in_words,
    command_line,
    instance_path,
    load_instance,
    load_instances,
    part_name,
    present_of,
    setting_in_words,
    slug_of_part,
)
from resources.settings.models import (
    MAX_LOOKBACK_DAYS,
    Instance,
    ListCall,
    Platform,
    is_slug,
    slug_of,
    time_between_runs,
)
