"""Debian's Chromium without a window, with a profile of its own; it ends with the test."""

import contextlib
import os

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from .processes import TIME_FACTOR, wait_until

PATIENCE = 60
ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
             "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-proxy-server", "--lang=en")


class Browser:
    """One window. `driver` is what Selenium has."""

    def __init__(self, driver):
        self.driver = driver

    def size(self, width, height, phone=False):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone})

    def scheme(self, name):
        """light or dark: what the system prefers."""
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": name}]})

    def open(self, url):
        self.driver.get(url)

    def run(self, script):
        return self.driver.execute_script(script)

    def text(self, selector):
        """What is seen of the first such element; empty if there is none, or it is hidden."""
        return self.run(f"const e = document.querySelector({selector!r}); return e && e.getClientRects().length ? e.innerText : ''")

    def wait(self, condition, what):
        """Until condition() is truthy; returns that."""
        return wait_until(condition, PATIENCE, lambda: f"{what}; the page was: {self.text('body')}", interval=0.1)

    def wait_text(self, selector, part):
        return self.wait(lambda: part in self.text(selector), f"'{part}' in {selector}")

    def errors(self):
        """What the console has since the last call: a list of lines."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


@contextlib.contextmanager
def browser(directory):
    """`directory` is where it keeps all that it writes."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("XDG_")} | {"HOME": directory}
    options = webdriver.ChromeOptions()
    for argument in (*ARGUMENTS, f"--user-data-dir={directory}/profile"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver", env=environment))
    try:
        driver.set_page_load_timeout(PATIENCE * TIME_FACTOR)
        driver.set_script_timeout(PATIENCE * TIME_FACTOR)
        yield Browser(driver)
    finally:
        driver.quit()
