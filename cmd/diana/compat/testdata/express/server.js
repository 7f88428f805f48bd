// SPDX-License-Identifier: MIT

// Servers of Node behind the gateway, one a port: node server.js FILES PORT...
'use strict'

const express = require('express')
const http = require('http')
const methodOverride = require('method-override')
const url = require('url')

const [files, ...ports] = process.argv.slice(2)

function say (res, route) {
  res.set('Content-Type', 'text/plain').send(`served: ${route}\n`)
}

// routed is an express program with every route, also below /base.
function routed (options) {
  const app = express()
  for (const [name, value] of Object.entries(options)) app.set(name, value)
  for (const field of ['X-HTTP-Method-Override', 'X-HTTP-Method', 'X-Method-Override']) {
    app.use(methodOverride(field, { methods: null }))
  }
  for (const base of ['/base', '']) {
    for (const route of ['/admin', '/admin/x', '/a/b/secret', '/api/:id/secret']) {
      app.get(base + route, (req, res) => say(res, base + route))
    }
    app.post(base + '/login', (req, res) => say(res, base + '/login'))
    app.use(base + '/admin', (req, res) => say(res, base + '/admin')) // also for what is below it
    app.use(base || '/', (req, res) => say(res, base ? '/base/' : '/other'))
  }
  return http.createServer(app)
}

// read serves the path that a parser of URLs finds.
function read (parse) {
  return http.createServer((req, res) => {
    try {
      res.end(`served: ${decodeURIComponent(parse(req.url))}\n`)
    } catch {
      res.writeHead(400).end('malformed\n')
    }
  })
}

const servers = [
  routed({}),
  routed({ 'strict routing': true, 'case sensitive routing': true }),
  http.createServer(express().use(express.static(files))),
  read(target => new URL(target, 'http://localhost').pathname),
  read(target => url.parse(target).pathname)
]
servers.forEach((server, i) => server.listen(ports[i], '127.0.0.1'))
