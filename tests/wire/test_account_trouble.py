"""The words by which providers refuse the gateway's own key, money, organisation or region."""

import pytest

from gateway.wire.openai.account_trouble import is_account_trouble

QUOTA = "You exceeded your current quota, please check your plan and billing details."
# Each with where it is from: a report to a tracker that quotes the message.
SPENT = [
    # OpenAI; simonw/llm#494
    (
        429,
        "You exceeded your current quota, please check your plan and billing details.",
        "insufficient_quota",
    ),
    (429, QUOTA, None),
    (429, "no", "insufficient_quota"),
    # OpenAI; bajrangCoder/acode-plugin-chatgpt#19
    (400, "Billing hard limit has been reached", "billing_hard_limit_reached"),
    # Anthropic; anthropics/claude-code#66314
    (
        400,
        "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing.",
        "invalid_request_error",
    ),
    (
        400,
        "You have reached your specified API usage limits. You will regain access on 2026-08-01.",
        "invalid_request_error",
    ),
    (400, "You have reached your specified workspace API usage limits.", None),
    # Moonshot
    (429, "Your account is suspended", "exceeded_current_quota_error"),
    (403, "insufficient_quota", None),
    (500, "insufficient_quota", None),
    # Gemini
    (400, "API key not valid. Please pass a valid API key.", "INVALID_ARGUMENT"),
    (400, "API key expired. Please renew the API key.", None),
    (400, "User location is not supported for the API use.", "FAILED_PRECONDITION"),
    (400, "no", "API_KEY_INVALID"),
    # xAI
    (400, "Incorrect API key provided: xa***. You can obtain an API key from the console.", None),
    (403, "Your newly created team doesn't have any credits yet.", None),
    # Alibaba's DashScope
    (400, "Access denied, please make sure your account is in good standing.", "Arrearage"),
    # Groq
    (400, "Organization has been restricted. Please reach out to support.", "organization_restricted"),
    # DeepSeek
    (402, "Insufficient Balance", "invalid_request_error"),
    # OpenAI
    (403, "Country, region, or territory not supported", "unsupported_country_region_territory"),
    # Moonshot
    (429, "Your account org-1 <ak-1> is suspended, please check your plan and billing details", None),
    # Zhipu
    (429, "余额不足或无可用资源包,请充值。", "1113"),
    # Azure
    (401, "Access denied due to invalid subscription key or wrong API endpoint.", "401"),
    # OpenRouter
    (402, "Insufficient credits. Add more using https://openrouter.ai/credits", None),
    (403, "Key limit exceeded (total limit).", None),
    # Together
    (422, "Your billing account is disabled.", "credit_limit"),
]
NOT_SPENT = [
    (429, "Rate limit reached for requests", "rate_limit_exceeded"),
    (429, "This request would exceed the rate limit for your organization of 50 requests per minute.", None),
    # Gemini's limit per minute
    (
        429,
        f"{QUOTA}\n* Quota exceeded for metric: generate_content_free_tier_requests, limit: 10\nPlease retry in 27.5s.",
        None,
    ),
    (400, "'temperature' must be at most 2", "invalid_value"),
    (400, "prompt is too long: 213462 tokens > 200000 maximum", None),
    (400, "The model `x` does not exist or you do not have access to it.", "model_not_found"),
    (400, "Unknown parameter: 'api_key_x'.", None),
    (400, "invalid token id 999999", None),
    (400, "Invalid value: 'region'. Supported values are: 'eu' and 'us'.", None),
    (200, "insufficient_quota", None),
]


@pytest.mark.parametrize(("status", "message", "label"), SPENT)
def test_retry_10_the_words_of_a_spent_account(status: int, message: str, label: str | None):
    assert is_account_trouble(status, message, None, label, None)
    assert is_account_trouble(status, message, None, None, label)


@pytest.mark.parametrize(("status", "message", "label"), NOT_SPENT)
def test_retry_10_other_refusals_are_not(status: int, message: str, label: str | None):
    assert not is_account_trouble(status, message, None, label)


def test_a_429_that_says_when_to_come_back_means_it():
    assert not is_account_trouble(429, "You exceeded your current quota", 20.0, "insufficient_quota")
    assert is_account_trouble(400, "Your credit balance is too low", 20.0)
