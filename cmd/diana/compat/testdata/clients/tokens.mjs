// SPDX-License-Identifier: MIT

// Sends requests with the SDK of Anthropic, and prints what Diana has to charge for them:
//
//	node tokens.mjs BASE-URL REQUESTS RESERVED QUOTA
//
// A tenth of the requests leaves early.
import Anthropic from '@anthropic-ai/sdk'

const baseURL = process.argv[2]
const [requests, reserved, quota] = process.argv.slice(3).map(Number)
const workers = 16
const seen = {charged: {}, unsettled: 0, left: 0}

// A small generator of random numbers, so that each run sends the same requests.
let state = 17
const random = n => {
	state = (state * 1103515245 + 12345) % 2147483648
	return Math.floor(state / 65536) % n
}

// The weights of the rule "messages".
const weigh = u => Math.ceil(u.input_tokens + 4 * u.output_tokens + 0.25 * (u.cache_read_input_tokens ?? 0))

const paramsOf = (leaves, stream) => ({
	model: leaves ? 'slow' : 'small',
	max_tokens: 1 + random(20),
	system: 'x'.repeat(random(60)),
	messages: [{role: 'user', content: 'y'.repeat(random(60))}],
	stream,
})

// Ends a request when Diana has charged it. The provider refuses the requests that ask.
async function leaveOnceCharged(key, controller) {
	for (;;) {
		const answer = await fetch(baseURL + '/v1/messages', {method: 'POST', body: '{}', headers: {authorization: `Bearer ${key}`}})
		await answer.text()
		const [, left] = /;r=(\d+)/.exec(answer.headers.get('ratelimit'))
		if (Number(left) < quota - reserved) return controller.abort()
	}
}

async function once(client, leaves) {
	const stream = random(2) === 0
	const params = paramsOf(leaves, stream)
	if (!stream) {
		const controller = new AbortController()
		if (leaves) leaveOnceCharged(client.apiKey, controller)
		try {
			return weigh((await client.messages.create(params, {signal: controller.signal})).usage)
		} catch (error) {
			if (!leaves || !(error instanceof Anthropic.APIUserAbortError)) throw error
			return reserved
		}
	}
	let usage
	const events = await client.messages.create(params)
	for await (const event of events) {
		if (event.type === 'message_start') {
			usage = event.message.usage
			if (leaves) {
				events.controller.abort()
				return Math.max(reserved, weigh(usage))
			}
		}
		if (event.type === 'message_delta') usage = {...usage, ...event.usage}
	}
	return weigh(usage)
}

async function work(worker) {
	for (let i = worker; i < requests; i += workers) {
		const leaves = i % 10 === 9
		const apiKey = leaves ? `messages-left-${i}` : `messages-${worker}`
		const client = new Anthropic({apiKey, baseURL, maxRetries: 0})
		const cost = await once(client, leaves)
		seen.charged[apiKey] = (seen.charged[apiKey] ?? 0) + cost
		if (leaves) {
			seen.unsettled++
			seen.left++
		}
	}
}

await Promise.all(Array.from({length: workers}, (_, worker) => work(worker)))
console.log(JSON.stringify(seen))
