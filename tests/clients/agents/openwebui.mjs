// A new user's first message to Open WebUI, at WEBUI_URL: the answer of the model is on the page, with its Markdown.
import assert from 'node:assert/strict';
import { chromium } from 'playwright-core';

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox'] });
try {
  const page = await browser.newPage();
  page.setDefaultTimeout(30_000);
  await page.goto(process.env.WEBUI_URL);
  await page.getByText("Okay, Let's Go!").click();
  await page.locator('#chat-input').click();
  await page.keyboard.type('Say hello to Open WebUI.');
  await page.keyboard.press('Enter');
  const answer = page.locator('.chat-assistant');
  await answer.locator('strong').waitFor();
  assert.equal((await answer.innerText()).trim(), 'Hello from Arclight.');
  // It asks for a title behind the answer, and shows it.
  await page.waitForFunction(() => document.title.includes('A greeting'));
  console.log('The answer is there.');
} catch (error) {
  console.error(await browser.contexts()[0]?.pages()[0]?.locator('body').innerText());
  throw error;
} finally {
  await browser.close();
}
