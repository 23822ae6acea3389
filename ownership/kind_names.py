"""Names by which accounts and machines are known for what they are: data that `kinds` asks.

In a table of forms, `WORD` stands for each of the words beside it: in lower case, as names are compared, with
a comma and a blank between. Words may be regular expressions.
"""

# ruff: noqa: RUF001  (letters of other alphabets are intended)

from collections.abc import Mapping

Forms = Mapping[str, str]

BUILT_IN: Mapping[str, str] = {
    "all languages": "iusr, krbtgt, wdagutilityaccount, wsiaccount, containeruser, containeradministrator, "
    "cliusr, aspnet, helpassistant, homegroupuser$, devtoolsuser, sshd, anonymous, trustedinstaller",
    "products": "defaultapppool, classic .net apppool, mssqlserver, sqlserveragent, mssqlserverolapservice, "
    "mssqlfdlauncher, mssqllaunchpad, sqltelemetry, ssastelemetry, sqlbrowser, sqlwriter, reportserver, "
    "sqlserverreportingservices, healthservice, himds, exchange online-applicationaccount, provagentgmsa$, "
    "azureadkerberos, sqldebugger, tsinternetuser, updatususer, cloudbase-init, cyg_server",
    "English": "system, local system, local service, network service, anonymous logon, guest, "
    "default account, font driver host, window manager",
    "German": "lokales system, lokaler dienst, netzwerkdienst, anonymous-anmeldung, anonyme anmeldung, gast, "
    "standardkonto",
    "French": "système, système local, service local, service réseau, anonymous-logon, "
    "ouverture de session anonyme, connexion anonyme, invité",
    "Spanish": "sistema, sistema local, servicio local, servicio loc, servicio de red, "
    "inicio de sesión anónimo, invitado",
    "Catalan": "servei local, servei de xarxa, inici de sessió anònim, convidat",
    "Italian": "servizio locale, servizio di rete, accesso anonimo, ospite",
    "Portuguese": "serviço local, serviço de rede, logon anônimo, início de sessão anónimo, convidado, "
    "hóspede",
    "Romanian": "serviciu local, serviciu de rețea, conectare anonimă, logon anonim, invitat, oaspete",
    "Dutch": "systeem, lokale service, lokaal systeem, netwerkservice, anonieme aanmelding, "
    "anonymous-aanmelding",
    "Swedish": "lokal tjänst, nätverkstjänst, anonym inloggning, gäst",
    "Danish": "lokal tjeneste, netværkstjeneste, anonymt logon, anonym logon, gæst",
    "Norwegian": "nettverkstjeneste, anonym pålogging, gjest",
    "Finnish": "järjestelmä, paikallinen palvelu, verkkopalvelu, anonyymi kirjautuminen, "
    "anonyymi sisäänkirjautuminen, vieras",
    "Estonian": "süsteem, kohalik teenus, võrguteenus, anonüümne sisselogimine, külaline",
    "Latvian": "sistēma, lokālais pakalpojums, vietējais pakalpojums, tīkla pakalpojums, "
    "anonīma pieteikšanās, viesis",
    "Lithuanian": "vietinė tarnyba, vietinė paslauga, tinklo tarnyba, tinklo paslauga, "
    "anoniminis prisijungimas, svečias",
    "Polish": "usługa lokalna, usługa sieciowa, logowanie anonimowe, gość, konto domyślne",
    "Czech": "systém, místní služba, síťová služba, anonymní přihlášení, host",
    "Slovak": "lokálna služba, miestna služba, sieťová služba, anonymné prihlásenie, hosť",
    "Hungarian": "rendszer, helyi rendszer, helyi szolgáltatás, hálózati szolgáltatás, "
    "névtelen bejelentkezés, vendég, alapértelmezett fiók",
    "Croatian": "sustav, lokalna usluga, lokalni servis, mrežna usluga, mrežni servis, anonimna prijava, "
    "gost",
    "Serbian": "sistem, anonimno prijavljivanje, anonimno prijavljivanje na sistem, систем, локална услуга, "
    "мрежна услуга, анонимно пријављивање",
    "Slovenian": "lokalna storitev, krajevna storitev, omrežna storitev",
    "Russian": "система, локальная система, локальная служба, местная служба, сетевая служба, "
    "анонимный вход, гость",
    "Ukrainian": "локальна служба, місцева служба, мережна служба, мережева служба, анонімний вхід, гість",
    "Bulgarian": "локална служба, мрежова услуга, мрежова служба, анонимно влизане, гост",
    "Greek": "σύστημα, τοπική υπηρεσία, υπηρεσία δικτύου, ανώνυμη σύνδεση, επισκέπτης",
    "Turkish": "yerel sistem, yerel hizmet, ağ hizmeti, anonim oturum açma, konuk",
    "Hebrew": "מערכת, שירות מקומי, שירות רשת, כניסה אנונימית, אורח",
    "Arabic": "النظام, نظام, خدمة محلية, الخدمة المحلية, خدمة الشبكة, تسجيل دخول مجهول, ضيف",
    "Thai": "ระบบ, บริการท้องถิ่น, บริการภายใน, บริการเครือข่าย, เข้าสู่ระบบแบบไม่ระบุชื่อ, ผู้เยี่ยมชม",
    "Chinese": "系统, 系統, 本地服务, 本機服務, 网络服务, 網路服務, 匿名登录, 匿名登入, 来宾, 來賓",
    "Japanese": "システム, ローカル サービス, ネットワーク サービス, 匿名ログオン, ゲスト",
    "Korean": "시스템, 로컬 서비스, 네트워크 서비스, 익명 로그온, 게스트",
}
"""Whole names of accounts that Windows and other products make; blanks and accents are not compared."""

BUILT_IN_FORMS: Forms = {
    "^WORD$": r"defaultuser\d*, krbtgt_(\d+|azuread), dwm-\d+, umfd-\d+, sshd_\d+, kioskuser\d+, "
    r"(iusr|iwam|vusr)_.+, support_388945a0, "
    # Whose SID begins otherwise, or ends with four digits, is an account of a directory or machine.
    r"s-1-([0-4]|1[56]|5-(\d|[13-9]\d|20|2[2-9]|\d{3,}))(-\d+)*, s-1-5-21(-\d+){3}-\d{1,3}, "
    r"\{?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\}?, migration\.[0-9a-f-]{36}, federatedemail\..*, "
    r"healthmailbox.*, systemmailbox.*, discoverysearchmailbox.*, extest_[0-9a-f]+, "
    r"sm_[0-9a-f]{15}[0-9a-f]*, \$[0-9a-z]{6}-[0-9a-z]{12}, msol_.*, aad_.*, (adsyncmsa|pgmsa_)[0-9a-z]+\$, "
    r"\.netv\d.*, msdtsserver\d*, (mssql|sqlagent|sqltelemetry|ssastelemetry|mssqlfdlauncher|mssqllaunchpad|"
    r"reportserver|msolap)\$.+, sqlserver\w+\$.+, "
    # Citrix; QuickBooks, Acronis, LogMeIn and others; VMware; Kaspersky; Lenovo.
    r"anon\d{3}, ctx_.+, \w+(service|agent|remote|telemetry)user\d*, __.+__, kl-ak-[0-9a-f]+, lenovo_tmp_.+",
}
"""What such names look like where each machine has another one."""

PRIVATE_ACCOUNTS = "microsoftaccount"
"""The one of AUTHORITIES whose accounts are people's: their own, not their company's."""
AUTHORITIES: tuple[str, ...] = (
    PRIVATE_ACCOUNTS,
    *("nt authority", "nt service", "nt task", "nt virtual machine", "iis apppool", "window manager"),
    *("font driver host", "user manager", "virtual users", "builtin"),
    # NT AUTHORITY in German, French, Spanish, Portuguese, Italian, Romanian, Dutch, Swedish, Norwegian,
    # Danish and Polish, with and without accents.
    *("nt-autorität", "nt-autoritaet", "nt-autoritat", "autorité nt", "autorite nt", "autoridad nt"),
    *("autoridade nt", "autorità nt", "autoritate nt", "nt-autoriteit", "nt instans", "nt-instans"),
    *("nt-myndighet", "nt-myndighed", "zarządzanie nt", "zarzadzanie nt"),
)
"""Domains of accounts that Windows or Microsoft keeps, in lower case: not directories (rules 1.3)."""
NO_DIRECTORIES = (*AUTHORITIES, ".", "localhost")
"""Domains of accounts that stand for nobody on any host: Windows' own, and its words for the host itself."""

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
    "backup, noreply, spfarm, sophos, db2inst",
    r"^WORD([-_.\d]|$)": "ansible, jenkins, splunk, nagios, tomcat, postgres, mysql, oracle, sharepoint, "
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
    "järjestelmänvalvoja, администратор, адміністратор, yönetici\u0307?, správce, διαχειριστ[ήη]ς, "
    "beheerder, rendszergazda, administraator, administratorius",
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
