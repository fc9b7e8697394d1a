# SPDX-License-Identifier: GPL-2.0-or-later
"""Debian's Chromium, without a window, and its driver."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service


class Browser:
    """A headless Chromium that has a page open."""

    def __init__(self, profile: Path) -> None:
        options: Any = webdriver.ChromeOptions()
        for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
            options.add_argument(word)
        options.add_argument(f"--user-data-dir={profile}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        service = Service("/usr/bin/chromedriver")
        self.driver: Any = webdriver.Chrome(options=options, service=service)

    def cdp(self, command: str, **parameters: object) -> Any:
        """Call a method of the DevTools protocol."""
        return self.driver.execute_cdp_cmd(command, parameters)

    def run(self, script: str, *arguments: object) -> Any:
        """Return a script's result; the page's security policy does not apply to it."""
        return self.driver.execute_script(script, *arguments)

    def show(self, file: Path, width: int, scheme: str, media: str = "screen") -> None:
        """Reopen a file, in a window of this width."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.cdp("Emulation.setDeviceMetricsOverride", **size)
        wanted = [{"name": "prefers-color-scheme", "value": scheme}]
        self.cdp("Emulation.setEmulatedMedia", media=media, features=wanted)
        self.driver.get(file.as_uri())

    def asked(self, address: str) -> list[str]:
        """Return the addresses that a page has requested since the last call, its own first.

        Requests of Chromium's own pages are logged as well.
        """
        logged = self.driver.get_log("performance")
        events = [json.loads(one["message"])["message"] for one in logged]
        sent = [one["params"] for one in events if one["method"] == "Network.requestWillBeSent"]
        return [one["request"]["url"] for one in sent if one["documentURL"] == address]

    def colour(self, x: float, y: float) -> tuple[int, ...]:
        """Return the red, green and blue of a pixel of the window."""
        shot = Image.open(io.BytesIO(self.driver.get_screenshot_as_png())).convert("RGB")
        found: tuple[int, ...] = shot.getpixel((round(x), round(y)))
        return found
