"""Names by which accounts and machines are known for what they are: data that `kinds` asks.

In a table of forms, `WORD` stands for each of the words beside it: in lower case, as names are compared, with
a comma and a blank between. Words may be regular expressions.
"""

# ruff: noqa: RUF001  (letters of other alphabets are intended)

from collections.abc import Mapping

Forms = Mapping[str, str]

BUILT_IN: Mapping[str, str] = {
    "all languages": r"iusr, krbtgt, defaultuser\d*, wdagutilityaccount, dwm-\d+, umfd-\d+, sshd_\d+, "
    r"cliusr, s-1-\d+(-\d+)+",
    "products": r"healthmailbox.*, systemmailbox.*, msol_.*, aad_.*, defaultapppool, \.net v\d.*, "
    r"mssqlserver, sqlserveragent, (mssql|sqlagent|sqltelemetry|mssqlfdlauncher|reportserver)\$.+",
    "English": "system, local ?system, local service, network service, anonymous logon, guest, "
    "default ?account, font driver host, window manager",
    "German": "lokaler dienst, netzwerkdienst, anonymous-anmeldung, gast",
    "French": "système, service local, service réseau, invité",
    "Spanish": "sistema, servicio local, servicio de red, invitado",
    "Italian": "servizio locale, servizio di rete",
    "Portuguese": "serviço local, serviço de rede, convidado",
    "Dutch": "lokale service, netwerkservice",
    "Swedish": "lokal tjänst, nätverkstjänst, anonym inloggning, gäst",
    "Danish": "lokal tjeneste, netværkstjeneste, anonymt logon, gæst",
    "Norwegian": "nettverkstjeneste, anonym pålogging, gjest",
    "Finnish": "järjestelmä, paikallinen palvelu, verkkopalvelu, vieras, anonyymi kirjautuminen",
    "Russian": "система, локальная служба, сетевая служба, анонимный вход, гость",
    # Lower-cased, a Turkish capital I with a dot leaves the dot behind.
    "Turkish": "sistem, yerel hi\u0307?zmet, ağ hi\u0307?zmeti\u0307?, anoni\u0307?m oturum açma, konuk",
    "Polish": "usługa lokalna, usługa sieciowa, logowanie anonimowe, gość",
    "Czech": "místní služba, síťová služba, anonymní přihlášení, host",
    "Greek": "σ[ύυ]στημα, τοπικ[ήη] υπηρεσ[ίι]α, υπηρεσ[ίι]α δικτ[ύυ]ου, αν[ώω]νυμη σ[ύυ]νδεση, "
    "επισκ[έε]πτης",
}
"""Whole names of accounts that Windows and Microsoft's products make."""

AUTHORITIES: tuple[str, ...] = (
    *("microsoftaccount", "nt authority", "nt service", "iis apppool", "nt virtual machine", "nt task"),
    *("window manager", "font driver host", "user manager", "builtin"),
    # NT AUTHORITY in German, French, Spanish, Portuguese, Italian, Romanian, Dutch, Swedish, Norwegian, Danish
    # and Polish, with and without accents.
    *("nt-autorität", "nt-autoritaet", "nt-autoritat", "autorité nt", "autorite nt", "autoridad nt"),
    *("autoridade nt", "autorità nt", "autoritate nt", "nt-autoriteit", "nt instans", "nt-instans"),
    *("nt-myndighet", "nt-myndighed", "zarządzanie nt", "zarzadzanie nt"),
)
"""Domains of accounts that Windows or Microsoft keeps, in lower case: they are no directory (rules 1.3)."""

SERVICE: Forms = {
    r"^WORD[-_.]": "svc, gmsa, service, srv",
    r"^WORD[a-z]{3}": "svc, gmsa",
    r"[a-z]{2}WORD\d*\$?$": "svc",
    r"[-_.]WORD\$?\d*$": "svc, srv, service, services, gmsa",
    r"^WORD[-_]": "sa, msa, batch, task, job, sql, db, scan, scanner, monitor, app, api, bot, rpa, robot, "
    "ldap, bind, ftp, sftp, web, iis, sap, oracle, sp, print, fax, mail, smtp, sync, deploy, vpn, radius, "
    "report, reporting",
    r"[-_]WORD\d*$": "batch, task, job, push, agent, bot, robot, sync, bind, api, app, sql, scan, scanner, "
    "monitor, deploy",
    r"^WORD": "ldapbind, adbind, sccm, mecm, scom, qualys, nessus, veeam, zabbix, prtg, tenable, rapid7, "
    "backup, noreply, spfarm",
    r"^WORD([-_.\d]|$)": "sophos, ansible, jenkins, splunk, nagios, tomcat, postgres, oracle, sharepoint, "
    "solarwinds, lansweeper, commvault, netbackup, scanner, monitoring, deploy, deployment, gitlab, puppet, "
    "adsync, adconnect, sqlserver",
}
MANAGED_SERVICE: Forms = {r"^WORD[-_.].*\$$": "svc, gmsa, msa", r"WORD\$$": "svc, gmsa"}
ADMINISTRATOR: Forms = {
    r"^WORD": "admin, a-",
    r"^WORD([-_.\d]|$)": "adm",
    r"WORD\d*$": "admin",
    r"[-_.]WORD\d*$": "adm, priv, t[012], tier[012]",
    r"[-_]WORD$": "da, ea, su",
    r"WORD$": "-a",
    r"^WORD[-_]": "su, priv, t[012], tier[012], da, ea, domadm",
    r"^WORD\.": "t[012], priv",
    r"^WORD$": "administrator, administrador, administrateur, administratör, amministratore, root, "
    "järjestelmänvalvoja, администратор, yönetici\u0307?, správce, διαχειριστ[ήη]ς, beheerder, rendszergazda",
}
ADMINISTRATOR_OF: Forms = {r"^WORD[-_.]?": "adm", r"[-_.]?WORD$": "adm"}
"""What an administrator's name has besides the name of the user asset."""

COLLECTOR: Forms = {
    r"^WORD([-_]?\d+)?$": "wec, wef, collector, logstash, fluentd?, syslog, siem, log-?collector, forwarder",
    r"^WORD": "wecserver",
}
SERVER: Forms = {
    r"(^|[-_])WORD(server)?[-_]?\d+[a-z]?$": "srv, server, sql, mssql, db, web, app, file, fs, print, exch, "
    "exchange, mail, adfs, wsus, dhcp, dns, pki, ca, hv, esx, backup, term, ts, rds, citrix",
    r"^WORD[-_a-z]*\d": "srv, server, svr",
    r"(^|[-_.])WORD([-_.]|$)": "dc",
    r"WORD\d*$": "dc",
}
KIOSK: Forms = {
    r"(^|[-_])WORD([-_]?\d|[-_]|$)": "kiosk, lab, class, classroom, training, reception, meeting, lobby, "
    "pos, library, info",
}
WORKSTATION: Forms = {
    r"(^|[-_])WORD([-_]?\d|[-_]|$)": "lt, nb, pc, ws, wks, dt, lap, laptop, desk, desktop, notebook, vdi",
}

LETTERS: Mapping[str, str] = {"ß": "ss", "ø": "o", "ł": "l", "đ": "d", "æ": "ae", "œ": "oe", "ı": "i"}
"""How logins write letters of surnames that are more than a letter with an accent."""
SPELLED_OUT: Mapping[str, str] = {**LETTERS, "ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa"}
