"""Nothing that stands in a run can become part of the page's code."""

from __future__ import annotations

import re

from roq.simulation.lab.report.markup import Markup, document, joined, tag


def test_text_is_escaped_and_markup_is_not() -> None:
    inner = tag("b", "a < b & c")
    assert tag("p", inner, " <script>") == "<p><b>a &lt; b &amp; c</b> &lt;script&gt;</p>"


def test_attributes_cannot_be_left() -> None:
    made = tag("p", title='" onload="alert(1)', class_="x", hidden=True, id=None, aria_hidden=False)
    assert made == '<p title="&quot; onload=&quot;alert(1)" class="x" hidden></p>'


def test_elements_without_content_are_not_closed() -> None:
    assert tag("meta", charset="utf-8") == '<meta charset="utf-8">'


def test_children_may_be_nested_and_missing() -> None:
    assert joined(None, ["a", [tag("i"), None]], "b") == "a<i></i>b"


def test_what_steers_terminals_or_turns_writing_around_does_not_reach_the_page() -> None:
    assert tag("p", "a\x1b[31m\u202eb\x00") == "<p>a\ufffd[31m\ufffdb\ufffd</p>"


def test_data_cannot_end_the_element_it_stands_in() -> None:
    text = document("t", Markup(""), style="", script="", data={"a": "</script><script>x()"})
    assert text.count("</script>") == 2
    assert "\\u003c/script\\u003e" in text


def test_only_the_pages_own_script_and_style_may_be_used() -> None:
    text = document("t", Markup(""), style="p{}", script="1", data=None)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src &#x27;none&#x27;")
    # sha256 of the script `1`, which everybody can look up
    assert "sha256-a4ayc/80/OGda4BO/1o/V0etpOqiLx1JwB5S3beHW0s=" in policy[1]
    assert "script-src &#x27;unsafe" not in policy[1]
