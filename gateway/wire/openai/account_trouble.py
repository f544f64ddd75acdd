"""Recognises that an upstream speaks of the gateway's own key, money, organisation or region.

Providers say so with 400, 401, 402, 403, 404, 422, 429 and even 500, so the words decide and not the status. No
client can mend it: another candidate is asked, and no client reads the words.
"""

import re
from typing import Final

_MAX_SEARCHED: Final = 2000  # characters of a message

_CODES: Final = re.compile(
    # OpenAI, Azure, Groq
    r"invalid_api_key|incorrect_api_key|account_deactivated|billing_not_active|insufficient_quota"
    r"|billing_hard_limit(?:_reached)?|unsupported_country_region_territory|organization_restricted"
    r"|organization_deactivated|project_archived|access_terminated|ip_not_authorized|invalid_organization"
    # Anthropic; Moonshot; Zhipu; Together; one-api
    r"|authentication_error|billing_error|exceeded_current_quota(?:_error)?|account_arrears|credit_limit"
    r"|insufficient_(?:user_quota|credits|balance|funds)|payment_required|quota_exhausted|token_expired"
    # Google
    r"|api_key_(?:invalid|expired|service_blocked|http_referrer_blocked|ip_address_blocked)|billing_disabled"
    r"|consumer_(?:invalid|suspended)|unauthenticated"
    # Alibaba, ByteDance, Baidu, AWS
    r"|invalidapikey|arrearage|accessdenied(?:exception)?|access_denied|accountoverdueerror"
    r"|authenticationerror|invalidaccountstatus|unrecognizedclientexception|expiredtokenexception"
    r"|invalid_iam_token|iam_token_expired|overdue_payment"
)
_WORDS: Final = re.compile(
    # The key.
    r"(?:api|access|subscription|auth(?:entication|orization)?)[ _-]?(?:key|token)s?\b[^.\n]{0,60}?"
    r"(?:not valid|(?:is )?(?:invalid|expired|revoked|disabled|blocked|missing|deleted|wrong)"
    r"|not (?:found|recogni[sz]ed|authori[sz]ed|active))"
    r"|(?:invalid|incorrect|wrong|unknown|expired|revoked|missing|no) (?:api|access|subscription|bearer)"
    r"[ _-]?(?:key|token)"
    r"|(?:valid|provide (?:a|an|your)) api[ _-]?key|invalid (?:authentication|credentials)"
    r"|key limit exceeded|user not found\.?$"
    # The money.
    r"|credit balance is too low|insufficient (?:account )?(?:balance|credits?|funds|quota)"
    r"|(?:exceeded|out of|run out of|not enough|no|doesn't have any|does not have any|negative)"
    r" (?:your |the )?(?:\w+ ){0,3}(?:credits?|balance)\b"
    r"|(?:credit|spend(?:ing)?|billing|usage) (?:hard )?limit (?:has been |was )?(?:reached|exceeded)"
    r"|billing hard limit|specified (?:workspace )?api usage limits|in arrears|overdue[- ]payment"
    r"|account (?:balance|is (?:not )?in good standing)|billing (?:account|is)[^.\n]{0,40}"
    r"(?:disabled|not (?:active|enabled))|enable billing|payment (?:required|method)"
    r"|余额不足|欠费|账户.{0,8}(?:停用|冻结)|크레딧이? 부족|잔액이? 부족"
    # Gemini uses these words for a limit per minute too, with the time to wait.
    r"|exceeded your current quota(?!.*retry in)"
    # The organisation, the account and the region.
    r"|(?:organi[sz]ation|account|project|workspace|tenant)\b[^.\n]{0,50}?(?:has been |is |was )"
    r"(?:restricted|suspended|disabled|deactivated|terminated|blocked|banned|locked|closed)"
    r"|(?:country|region|location)\b[^.\n]{0,60}?(?:not supported|unsupported|not available|not allowed)"
    r"|(?:not supported|unsupported|not available) (?:in|for) your (?:country|region|location)"
    r"|(?:not a member|must be a member) of (?:an|the|any) organi[sz]ation",
    re.DOTALL,
)


def is_account_trouble(status: int, message: str, wait: float | None, *labels: str | None) -> bool:
    """Whether an error is about the gateway's account at the upstream.

    `labels` are the error's code, type and reasons. A 429 with a time to wait (`wait`, seconds) is an ordinary
    rate limit.
    """
    if status < 400 or (status == 429 and wait is not None):
        return False
    texts = [text[:_MAX_SEARCHED].lower() for text in (message, *labels) if text]
    return any(_CODES.fullmatch(text) or _WORDS.search(text) for text in texts)
