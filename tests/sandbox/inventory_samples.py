"""A little company for the inventory service's tests, a clock to turn, and a client that knows nothing."""

import requests

from sandbox.inventory import Account

TENANT = "t-1"
NOON = 1_800_000_000.0
SECRET = "JBSWY3DPEHPK3PXP"  # 80 bits, as many real services hand out
ADMIN = Account("admin@corp.example", "correct horse", roles={TENANT: "admin"}, unread_notifications=3)
READER = Account("reader@corp.example", "battery staple", roles={TENANT: "reader", "t-2": "admin"})
CODED = Account("coded@corp.example", "with a code", mfa_secret=SECRET, roles={TENANT: "admin"})
USERS = [
    {
        "id": "u-1",
        "user_email": "jörg@corp.example",
        "directory_user_surname": "Ölmann",
        "user_department": "Sales",
    },
    {"id": 17, "user_email": "ann@corp.example", "directory_user_surname": None, "user_department": "IT"},
]
HOSTS = [
    {"id": f"h-{number}", "search_agent_name": f"PC-{number}", "asset_owner": None, "department": None}
    for number in range(7)
] + [{"id": "h-7", "search_agent_name": ["FS03", "FS03.corp.example"], "asset_owner": "u-1", "os": "Windows"}]


class Clock:
    def __init__(self):
        self.now = NOON

    def __call__(self):
        return self.now


class Client:
    """Calls by path below /api/v1; `call` gives the envelope of an answer that came with HTTP status 200."""

    def __init__(self, service):
        self.base = service.url + "/api/v1/"
        self.session = requests.Session()

    def request(self, method, path, **arguments):
        return self.session.request(method, self.base + path, timeout=10, **arguments)

    def get(self, path, **arguments):
        return self.request("GET", path, **arguments)

    def post(self, path, **arguments):
        return self.request("POST", path, **arguments)

    def call(self, path, **form):
        answer = self.post(path, data=form)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def log_in(self, account):
        envelope = self.call("auth/login", email=account.email, password=account.password)
        assert envelope["status"], envelope
        return self
