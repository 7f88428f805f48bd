// SPDX-License-Identifier: MIT

// Makes one call with a client library at one setting, and prints what its user sees:
//
//	node refusals.mjs LIBRARY SETTING METHOD URL KEY
//
// tools/clients does the same with the libraries for Go, and describes the arguments.
import Anthropic from '@anthropic-ai/sdk'
import {ChatOpenAI} from '@langchain/openai'
import {Client} from '@modelcontextprotocol/sdk/client/index.js'
import {StreamableHTTPClientTransport} from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import OpenAI from 'openai'

const [library, setting, method, url, apiKey] = process.argv.slice(2)
const retries = setting === 'default' ? {} : {maxRetries: Number(setting)}
const messages = [{role: 'user', content: 'hello'}]

const calls = {
	async openai() {
		const client = new OpenAI({apiKey, baseURL: url + '/v1', ...retries})
		return (await client.chat.completions.create({model: 'small', messages})).choices[0].message.content
	},

	async anthropic() {
		const client = new Anthropic({apiKey, baseURL: url, ...retries})
		return (await client.messages.create({model: 'small', max_tokens: 100, messages})).content[0].text
	},

	async langchain() {
		const model = new ChatOpenAI({apiKey, model: 'small', configuration: {baseURL: url + '/v1'}, ...retries})
		return (await model.invoke('hello')).content
	},

	// Makes the call twice in one session, and returns what the second one shows.
	async mcp() {
		const client = new Client({name: 'compat', version: '1'})
		const reconnectionOptions = setting === 'default' ? undefined :
			{maxRetries: Number(setting), initialReconnectionDelay: 1000, maxReconnectionDelay: 30000, reconnectionDelayGrowFactor: 1.5}
		await client.connect(new StreamableHTTPClientTransport(new URL(url + '/mcp'), {
			requestInit: {headers: {authorization: `Bearer ${apiKey}`}}, reconnectionOptions,
		}))
		try {
			const once = async () => {
				if (method === 'tools/list') return `${(await client.listTools()).tools.length} tools`
				const {isError, content} = await client.callTool({name: 'quick'})
				return `isError: ${isError ?? false}: ${content.map(part => part.text).join(' ')}`
			}
			await once()
			return await once()
		} finally {
			await client.close()
		}
	},
}

try {
	console.log(await calls[library]())
} catch (error) {
	console.log(error.message)
}
