// SPDX-License-Identifier: MIT

package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/diana-limiter/diana/internal/answer"
	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/yamltext"
	"github.com/diana-limiter/diana/rule"
)

// The tables of keys define what a configuration can say. The reader and the schema use them.

const (
	tokens = "a-z!#$%&'*+.^_`|~0-9A-Z\\-" // characters of header names, for a class of a regular expression

	pointerPattern = `(/([^/~]|~[01])*)+` // of JSON, not empty
)

// keyFields are the fields in which clients usually send their keys.
var keyFields = []string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key"}

// The forms of values that are not mappings.
var (
	nameForm      = textForm{longest: longestName, pattern: `^[^\x00-\x1f\x7f]+$`}
	patternForm   = textForm{longest: longestURL, pattern: `^([A-Z][A-Z0-9_\-]* +)?(/([^ /?#{}]*|\{[^ /?#{}]+\}))+$`}
	hostForm      = textForm{longest: longestAddress, pattern: `^(\[[^\] /@]+\]|[^\[\]: /@]+):[0-9]+$`}
	redisURLForm  = textForm{longest: longestAddress, pattern: `^[Rr][Ee][Dd][Ii][Ss][Ss]?://([^/?#]*@)?(\[[^/?#@]*\]|[^/?#@:\[\]]+)(:(0*[1-9][0-9]*)?)?(/*|/(0|[1-9][0-9]*))$`}
	upstreamForm  = textForm{longest: longestAddress, pattern: `^[Hh][Tt][Tt][Pp][Ss]?://(\[[^\[\]/?#@]+\]|[^/?#@:\[\]]+)(:[0-9]*)?(/[^?#]*)?$`}
	mediaForm     = textForm{longest: longestName, pattern: `^[` + tokens + `]+/[` + tokens + `]+([ \t]*;[ -~\t]*)?$`}
	answerText    = answerForm{textForm{longest: longestAnswer}}
	bodyNumber    = wholeForm{0, bounds.MaxWindowN, 0}
	bodyValues    = mapForm{pointerForm, bodyValueForm{textForm{longest: longestActor}}}
	networkForm   = textForm{longest: longestAddress, pattern: `^[0-9A-Fa-f:.]+(/[0-9]+)?$`}
	pathForm      = textForm{longest: longestPath}
	pemForm       = textForm{longest: longestPath, not: `-----BEGIN|[\n\x00]`}
	hostName      = textForm{longest: longestHost, pattern: `^([^ /:@*]+|[0-9A-Fa-f:.]+(%.+)?)$`}
	userForm      = textForm{longest: longestUser, pattern: `^[^\s]+$`}
	whoForm       = textForm{longest: longestWho}
	classForm     = namingForm{textForm{longest: longestActor, pattern: `^(header|client):[` + tokens + `]+$`}}
	classNameForm = nameForm
	percentForm   = textForm{longest: 3, pattern: `^([0-9]|[1-4][0-9]|50)%$`}
	measureForm   = textForm{longest: longestName, pattern: `^(begin|byte|end)$`}
	zoneForm      = textForm{longest: longestZone, pattern: `^[0-9A-Za-z_+/-]+$`, otherwise: "UTC"}
	prefixForm    = textForm{longest: longestPrefix, pattern: `^[!-z|~]+$`, otherwise: "diana"}

	momentForm     = textForm{longest: longestMoment, pattern: `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$`}
	anyActor       = actorForm{textForm: textForm{longest: longestActor}, together: true}
	actorTogether  = actorForm{textForm: textForm{longest: longestActor}, not: []string{"all"}}
	actorSource    = actorForm{textForm: textForm{longest: longestActor}, not: []string{"all", "account", "device"}}
	accountForm    = listForm{of: sources, item: actorSource, distinct: true, otherwise: []string{"header:X-Account-Id"}}
	keyHeadersForm = listForm{of: "names of headers", item: textForm{longest: longestActor, pattern: `^[` + tokens + `]+$`}, nonempty: true, distinct: true, otherwise: keyFields}
	staleForm      = durationForm{time.Minute, 744 * time.Hour, 24 * time.Hour}
	algorithmsForm = listForm{of: "algorithms", item: wordForm{tokenAlgorithms}, nonempty: true, distinct: true, otherwise: []string{"RS256", "ES256"}}
	issuersForm    = oneOrListForm{listForm{of: "issuers", item: issuerKeys, nonempty: true}}
	deviceForm     = listForm{of: sources, item: actorSource, distinct: true, otherwise: []string{"header:X-Device-Id"}}
	hosts          = listForm{of: "host:port", item: hostForm, nonempty: true, distinct: true}
	divertStatus   = wholeForm{200, 599, 200}
	statusForm     = wholeForm{400, 599, 503}
	rpcStatusForm  = wholeForm{200, 599, 200}
	statusesForm   = listForm{of: "statuses, or all", item: wholeForm{least: 100, most: 599}, nonempty: true, distinct: true}
	maxKeysForm    = wholeForm{1, maxMaxKeys, 1_000_000}
	headersForm    = truthForm{true}
	reserveForm    = reservation{wholeForm{1, bounds.MaxN, 1}, textForm{longest: longestActor, pattern: `^body:` + pointerPattern + `$`}}
	orForm         = wholeForm{1, bounds.MaxN, 1}
	weightForm     = numberForm{mostWeight, 1}
	moreForm       = numberForm{mostWeight, 0}
	scaleForm      = wholeForm{1, 1_000_000_000_000, 1}
	afterForm      = durationForm{0, bounds.MaxAfter, 10 * time.Second}
	pointerForm    = textForm{longest: longestActor, pattern: `^` + pointerPattern + `$`}
	outputList     = listForm{of: "JSON pointers", called: "output", item: pointerForm, nonempty: true, distinct: true}
	modelForm      = textForm{longest: longestActor, pattern: `^body:` + pointerPattern + `$`}
	modelNameForm  = textForm{longest: longestActor, pattern: `^[^*]*[*]?$`}
	tokensForm     = textForm{longest: 15, pattern: `^[1-9][0-9]{0,14}$`}
	waitForm       = durationForm{least: time.Millisecond, most: bounds.MaxWait}
	rememberForm   = sizeForm{16 << 20}
	tagsForm       = wholeForm{1, 1024, 32}
	timeoutForm    = durationForm{time.Millisecond, 10 * time.Second, 50 * time.Millisecond}
	warmupForm     = durationForm{0, bounds.MaxWarmup, 0}
)

const (
	sources     = "sources such as header:X-Account-Id"
	defaultUnit = time.Second
)

// The tables of keys.
var (
	ruleKeys = keys{of: "a rule", name: "rule", together: meaningless, list: []key{
		{name: "name", form: nameForm, about: "Name in headers, metrics and status; unique. A reload keeps the counters of a rule by it. Default: made from the other keys."},
		{name: "actor", form: anyActor, about: "Whom the rule counts: each one by itself, or all together. A list of two or three counts as one."},
		{name: "unit", form: unitForm{}, about: "Unit of time of rpu: a name, or a duration of 1ms to 744h. With algo W also week, which begins on Monday, month, year, and total, which never ends."},
		{name: "rpu", form: wholeForm{least: 0, most: bounds.MaxWindowN}, required: true, about: "Requests per unit, at most 1,000,000,000 unless algo is W; 0 refuses all. With algo C: how many may be inside at once; AC: that number at most."},
		{name: "algo", form: algorithmForm{}, about: "Algorithm, by its short or long name."},
		{name: "scope", form: scopeForm{}, about: "local: counted in this process. global: counted in Redis, for all gateways."},
		{name: "burst", form: wholeForm{least: 1, most: bounds.MaxN}, about: "TB: the capacity. Default: rpu."},
		{name: "queue", form: wholeForm{least: 0, most: bounds.MaxN}, about: "LB: most requests that wait at once; 0: none. Default: rpu. No wait is over 10 s."},
		{name: "slices", form: wholeForm{least: bounds.MinSlices, most: bounds.MaxSlices}, about: fmt.Sprintf("SW: parts that the window is counted in. Default: %d.", bounds.DefaultSlices)},
		{name: "align", form: choiceForm{"clock", "first"}, about: "W: windows start at multiples of the unit since 1970, UTC (clock), or at the first request (first)."},
		{name: "zone", form: zoneForm, about: "W: time zone in which the windows of an hour, day, week, month or year begin, by its IANA name. Default: UTC."},
		{name: "warmup", form: warmupForm, about: "TB: in which the rate climbs from a third to the whole after idleness, 0 to 10m; 0: no warm-up."},
		{name: "on_error", form: choiceForm{rule.Share.String(), rule.Whole.String(), rule.Open.String(), rule.Closed.String()}, about: "Of a global rule while Redis is out of reach: a share of the limit in each gateway, the whole limit in each (local), let pass all (open), or refuse all (closed)."},
		{name: "mode", form: choiceForm{"enforce", "shadow"}, about: "shadow: counted, and refuses nothing."},
		{name: "cost", form: costForm{}, about: "What a request counts: a number, header:NAME for one that a trusted proxy or an earlier filter writes, client:NAME for one that anyone may write, or where the answer says what it has cost."},
		{name: "charge", form: chargeForm{}, about: "Statuses of answers: only requests that are answered with one of them count. all: all count. Default: all, but for failures of a language model."},
		{name: "wait", form: waitForm, about: "TB, W, SW, SL, C, AC: how long a request over the limit waits for its turn, or for a slot, before it is refused, 1ms to 10m. Default: not at all."},
		{name: "min", form: wholeForm{least: 1, most: bounds.MaxN, otherwise: 1}, about: "AC: how many may always be inside at once."},
		{name: "measure", form: measureForm, about: "AC: until when a request is measured: the first byte of the answer (begin), that of its body (byte), or its end (end). Default: begin in diana serve, end in a program."},
		{name: "hold", form: choiceForm{"end", "begin"}, about: "AC: until when a request holds its slot: the end of the answer, or its first byte."},
		{name: "keep", form: percentForm, about: "AC: part of the limit that a priority leaves to each higher one that is active, 0% to 50%. Default: 10%."},
		{name: "least", form: percentForm, about: "AC: part of the limit that a lower priority always finds, 0% to 50%. Default: 5%."},
		{name: "priority", form: classForm, with: "priorities", about: "AC: header that names the priority: header:NAME for one that a trusted proxy writes, client:NAME for one that anyone may write, or what a credential proves, such as key:class."},
		{name: "priorities", form: listForm{of: "priorities", called: "priority", item: classNameForm, nonempty: true, distinct: true, most: bounds.MaxPriorities}, with: "priority", about: "AC: names of the priorities, the highest first, at most 8. No name or another one: the middle."},
		{name: "except", form: listForm{of: "values, addresses and networks", item: whoForm, distinct: true}, about: "Whom the rule does not judge: values of its actor, and addresses or networks of clients."},
		{name: "overrides", form: mapForm{whoForm, overrideKeys}, about: "Who has another limit: values of the rule's actor, and addresses or networks of clients."},
		{name: "class", form: classForm, with: "classes", about: "What names the class of a client, such as its plan: header:NAME for one that a trusted proxy writes, client:NAME for one that anyone may write, or what a credential proves, such as key:class."},
		{name: "classes", form: mapForm{classNameForm, classKeys}, with: "class", about: "The limits of classes, by their name. Who has another class, or none, has the rule's own."},
	}}

	costKeys = keys{of: "a cost", name: "cost", together: costTogether, list: []key{
		{name: "answer", form: textForm{longest: longestActor, pattern: `^(` + strings.Join(answer.Formats, "|") + `|bytes|duration|/.*|(header|trailer):[` + tokens + `]+)$`}, required: true, about: "Where the true cost stands: " + yamltext.Join(answer.Formats, "or") + " for the tokens that such an answer reports; a JSON pointer such as /usage/total_tokens; header:NAME or trailer:NAME; bytes; duration, in milliseconds."},
		{name: "reserve", form: reserveForm, about: "What the request is charged until the true cost is known: a number, body:/POINTER for a whole number in the JSON body of the request, or a mapping."},
		{name: "or", form: orForm, about: "What is reserved if the body has no such number."},
		{name: "scale", form: scaleForm, about: "JSON pointers: what the number is multiplied by, such as 1000000 for a price. The product is rounded up."},
		{name: "include_usage", form: truthForm{true}, about: "openai: whether a request for a stream gets \"stream_options\": {\"include_usage\": true}. A client that has not asked for it does not receive the usage."},
		{name: "weights", form: weightKeys, about: "What tokens cost, by their kind, or by the model. Default: each 1."},
		{name: "after", form: afterForm, about: "How long a stream is read on after its client has disconnected, to learn the usage, 0 to 1m."},
	}}

	reserveKeys = keys{of: "a reserve", name: "reserve", together: reserveTogether, list: []key{
		{name: "output", form: outputForm{}, about: "Where the body names its most tokens of output: JSON pointers, of which the largest number counts, or auto for all names of the format."},
		{name: "or", form: orForm, about: "Tokens of output of a request that names none."},
		{name: "most", form: wholeForm{least: 1, most: bounds.MaxN}, about: "With set: the largest number that a request may name. Default: or."},
		{name: "set", form: truthForm{}, about: "true: a request that names something else than 1 to most gets 400, and or is written into one that names nothing."},
		{name: "input", form: choiceForm{"none", "estimate", inBytes}, about: "Tokens of the request: none, the bytes of its body / 4 (estimate), or bytes x expand + add."},
		{name: "expand", form: wholeForm{1, 100, 1}, about: "Factor of bytes: 1 for tokenizers of bytes, 3 where text is normalised by NFC, 11 by NFKC."},
		{name: "add", form: wholeForm{least: 0, most: bounds.MaxN}, about: "Tokens that templates add to bytes. Default: 0."},
		{name: "min", form: wholeForm{least: 0, most: bounds.MaxWindowN}, about: "At least this is reserved in all. Default: 0."},
		{name: "bound", form: choiceForm{"estimate", "strict"}, about: "strict: a request that can cost more than it reserves gets 400."},
	}}

	plainWeights = keys{of: "weights", name: "plain-weights", list: []key{
		{name: "input", form: weightForm, about: "A token of the request."},
		{name: "output", form: weightForm, about: "A token of the answer."},
		{name: "cached", form: weightForm, about: "A token of the request that the provider had cached. Default in models: that of input."},
		{name: "cache_write", form: moreForm, about: "A token that the provider writes to its cache; 0: that of input."},
		{name: "cache_write_1h", form: moreForm, about: "A token that stays in the cache for an hour; 0: that of cache_write."},
		{name: "request", form: moreForm, about: "The request itself. Default: 0."},
	}}

	aboveKey = key{name: "above", form: mapForm{tokensForm, plainWeights}, about: "Weights of requests with more tokens of input than a number. What is left out stays as it is."}

	modelWeights = keys{of: "weights", name: "model-weights", list: slices.Concat(plainWeights.list, []key{aboveKey})}

	weightKeys = keys{of: "weights", name: "weights", together: weightsTogether, list: slices.Concat(plainWeights.list, []key{
		aboveKey,
		{name: "by", form: modelForm, about: "Where the request names its model, such as body:/model."},
		{name: "models", form: mapForm{modelNameForm, modelWeights}, about: "Weights by the model's name. A * at the end stands for any text."},
		{name: "unknown", form: choiceForm{"refuse", "dearest"}, about: "What becomes of a model that is not in models: 400, or the dearest weight of each kind."},
	})}

	jsonRPCKeys = keys{of: "jsonrpc", name: "jsonrpc", list: []key{
		{name: "status", form: rpcStatusForm, about: "Status of the answer to a call that is refused. Default: 200, which clients expect."},
	}}
	refusalKeys = keys{of: "refusal", name: "refusal", list: []key{
		{name: "jsonrpc", form: jsonRPCKeys, required: true, about: "Answers to calls of JSON-RPC."},
	}}

	divertKeys = keys{of: "divert", name: "divert", together: divertTogether, list: []key{
		{name: "status", form: divertStatus, about: "Status of the answer, 200 to 599 but for 204, 205 and 304, which have no body."},
		{name: "type", form: mediaForm, about: "Media type of the answer. Default: text/plain; of a file by its name, else by what is in it."},
		{name: "body", form: answerText, about: "Text of the answer. Or values by JSON pointer, such as {/model: small}: the request is judged once more with them in its body, and goes to the upstream if it is allowed then."},
		{name: "file", form: pathForm, about: "File that holds the answer, of at most 1 MiB, which is read with the configuration. Not in a configuration centre."},
		{name: "upstream", form: upstreamForm, about: "http:// or https:// URL of a server that is asked instead. Not in a configuration centre."},
	}}

	overrideKeys = keys{of: "an override", name: "override", together: overrideTogether, list: []key{
		{name: "rpu", form: wholeForm{least: 0, most: bounds.MaxWindowN}, about: "Requests per unit; 0 refuses all. Default: the rule's."},
		{name: "burst", form: wholeForm{least: 1, most: bounds.MaxN}, about: "TB: the capacity. Default: the rule's, or rpu if that says none."},
		{name: "queue", form: wholeForm{least: 0, most: bounds.MaxN}, about: "LB: most requests that wait at once. Default: the rule's, or rpu if that says none."},
		{name: "exempt", form: truthForm{}, about: "true: the rule skips the client, and has no limit beside it."},
		{name: "until", form: momentForm, about: "When the override ends, such as 2026-12-01T00:00:00Z. Default: never."},
	}}

	classKeys = keys{of: "an override", name: "class", together: something, list: []key{
		{name: "rpu", form: wholeForm{least: 0, most: bounds.MaxWindowN}, about: "Requests per unit; 0 refuses all. Default: the rule's."},
		{name: "burst", form: wholeForm{least: 1, most: bounds.MaxN}, about: "TB: the capacity. Default: the rule's, or rpu if that says none."},
		{name: "queue", form: wholeForm{least: 0, most: bounds.MaxN}, about: "LB: most requests that wait at once. Default: the rule's, or rpu if that says none."},
	}}

	bandwidthKeys = keys{of: "bandwidth", name: "bandwidth", list: []key{
		{name: "rate", form: rateForm{}, required: true, about: "Bytes a second; k is 1,000 and m 1,000,000."},
		{name: "actor", form: anyActor, about: "Whose answers share the rate, in this process. Default: each answer has it for itself."},
	}}

	entryKeys = keys{of: "an entry", name: "entry", together: rulesOrBandwidth, list: []key{
		{name: "url", also: "Url", form: patternForm, required: true, about: "Path that is limited, with all below it. {name} stands for one segment. A method may stand in front, as in POST /login."},
		{name: "rules", form: listForm{of: "rules", called: "rule", item: ruleKeys, nonempty: true}, about: "Rules that judge each request to the url."},
		{name: "bandwidth", form: bandwidthForm{}, about: "How fast the answers are sent at most, in bytes a second: a rate such as 50k, or a rate and whose answers share it."},
		{name: "divert", form: divertKeys, about: "What a request gets instead of a refusal by a rule of this entry: one of body, file and upstream."},
		{name: "refusal", form: refusalForm{}, about: "Form of refusals, for the clients of an API: problem, openai, anthropic, gemini, jsonrpc or auto. All but problem have the status 429, and a call of jsonrpc 200, or what {jsonrpc: {status: 429}} says."},
	}}
	entriesForm = listForm{of: "entries", called: "entry", item: entryKeys}

	tlsKeys = keys{of: "tls", name: "tls", list: []key{
		{name: "ca", form: pemForm, about: "PEM file of who signs the servers' certificates. Default: the system's authorities."},
		{name: "certificate", form: pemForm, with: "key", about: "PEM file of the certificate that is shown to the servers. Default: none."},
		{name: "key", form: pemForm, with: "certificate", about: "PEM file of the certificate's key."},
		{name: "server_name", form: hostName, about: "Host that is expected in the servers' certificates. Default: the one in the address."},
	}}

	sentinelKeys = keys{of: "sentinel", name: "sentinel", list: []key{
		{name: "master", form: textForm{longest: longestAddress}, required: true, about: "Name of the master that the Sentinels watch."},
		{name: "addresses", form: hosts, required: true, about: "host:port of the Sentinels."},
		{name: "username", form: userForm, with: "password", about: "User of the Sentinels themselves. Default: their default user."},
		{name: "password", form: secretForm{}, about: "Password of the Sentinels themselves: text, env:NAME or file:PATH. Default: none."},
	}}

	redisKeys = keys{of: "redis", name: "redis", together: redisTogether, list: []key{
		{name: "url", form: redisURLForm, about: "redis://HOST:PORT/DB, or rediss:// for TLS."},
		{name: "cluster", form: hosts, about: "host:port of servers of a Redis Cluster."},
		{name: "sentinel", form: sentinelKeys, about: "How the master is found of a Redis that Sentinel watches."},
		{name: "username", form: userForm, with: "password", about: "User of the ACL. Default: Redis' default user."},
		{name: "password", form: secretForm{}, about: "Password: text, env:NAME or file:PATH. Default: none."},
		{name: "tls", form: tlsKeys, about: "TLS to all servers and Sentinels; {}: by the system's authorities. A url needs rediss://."},
		{name: "timeout", form: timeoutForm, about: "Most that a request ever waits for Redis, 1ms to 10s."},
		{name: "prefix", form: prefixForm, about: "Prefix of every key in Redis."},
		{name: "remember", form: rememberForm, about: "Memory for the states that a gateway puts back after Redis has lost them, such as 16MiB; 0: none."},
		{name: "tags", form: tagsForm, with: "cluster", about: "Into how many parts the counters in a Cluster are divided; the same in all gateways. A change begins all limits again."},
	}}

	remoteKeys = remoteForm{keys{of: "remote", name: "remote", together: remoteTogether, list: []key{
		{name: "url", form: sourceForm{textForm{longest: longestAddress}}, required: true, about: "Where the document is, such as etcd://HOST:PORT/KEY, consul://HOST:PORT/KEY, redis://HOST:PORT/DB/KEY, https://HOST/PATH or file:///PATH."},
		{name: "username", form: userForm, with: "password", about: "User of the centre. Default: none."},
		{name: "password", form: secretForm{}, about: "Password: text, env:NAME or file:PATH. Default: none."},
		{name: "token", form: secretForm{}, about: "Bearer token of http and https, ACL token of consul: text, env:NAME or file:PATH. Default: none."},
		{name: "tls", form: tlsKeys, about: "TLS to the centre; {}: by the system's authorities. Default: as the scheme says."},
		{name: "snapshot", form: pathForm, about: "File for the last good copy, which serves a start without the centre. Default: none."},
	}}}

	keysKeys = keys{of: "keys", name: "keys", list: []key{
		{name: "file", form: pathForm, required: true, about: "File with a line for each API key, as diana key new prints it. Read again when it changes."},
		{name: "headers", form: keyHeadersForm, about: "Headers that can have an API key."},
	}}

	issuerKeys = keys{of: "an issuer", name: "issuer", list: []key{
		{name: "keys", form: textForm{longest: longestAddress, pattern: `^([Hh][Tt][Tt][Pp][Ss]?://[^@#]+|file:[^\n\x00]+)$`}, required: true, about: "Where the issuer's JWKS is: https://HOST/PATH or file:PATH."},
		{name: "issuer", form: textForm{longest: longestAddress}, required: true, about: "The claim iss of its tokens."},
		{name: "audience", form: textForm{longest: longestAddress}, required: true, about: "The claim aud of its tokens, or one of it."},
		{name: "algorithms", form: algorithmsForm, about: "Algorithms that sign its tokens. HS needs keys: file:PATH."},
		{name: "stale", form: staleForm, about: "How long the last good keys are valid while the issuer has none."},
	}}

	identityKeys = keys{of: "identity", name: "identity", list: []key{
		{name: "account", form: accountForm, about: "Where the actor account is found, tried in order; then the client's address."},
		{name: "device", form: deviceForm, about: "Where the actor device is found, tried in order; then the client's address."},
		{name: "required", form: choiceForm{"none", "any"}, about: "any: a request without a valid token or API key gets 401. One that is not valid always does."},
		{name: "keys", form: keysKeys, about: "API keys, which prove key:account and key:class. Default: none."},
		{name: "jwt", form: issuersForm, about: "Issuer of JWTs, or a list of issuers. A token proves jwt:CLAIM and jwt:/POINTER. Default: none."},
		{name: "upstream_headers", form: mapForm{textForm{longest: longestActor, pattern: `^[` + tokens + `]+$`}, secretForm{}}, about: "Headers that the upstream gets with a request that has a valid credential: text, env:NAME or file:PATH."},
		{name: "trusted_proxies", form: listForm{of: "networks", item: networkForm}, about: "Networks whose X-Forwarded-For is believed. Default: none."},
	}}

	pathsKeys = keys{of: "paths", name: "paths", list: []key{
		{name: "strange", form: choiceForm{"refuse", "judge"}, about: "What becomes of a request with a path that no honest client sends: refuse answers 400, judge has all entries of its method evaluate it."},
		{name: "case", form: choiceForm{"fold", "exact"}, about: "Whether /Admin is /admin (fold) or another path (exact)."},
	}}

	responseKeys = keys{of: "response", name: "response", list: []key{
		{name: "status", form: statusForm, about: "Status of a refusal."},
		{name: "headers", form: headersForm, about: "Whether answers that a rule judged carry the RateLimit fields."},
	}}

	fullKeys = keys{of: "a configuration", name: "configuration", list: []key{
		{name: "redis", form: redisKeys, about: "Redis, where global rules are counted. Default: none."},
		{name: "remote", form: remoteKeys, about: "A configuration centre, whose limits win over those of this file. Default: none."},
		{name: "identity", form: identityKeys, about: "Who account and device are, and whom to believe about the client's address."},
		{name: "paths", form: pathsKeys, about: "How paths are read."},
		{name: "response", form: responseKeys, about: "What a client sees."},
		{name: "max_keys", form: maxKeysForm, about: "Actors that this process remembers, all rules together."},
		{name: "limits", form: entriesForm, about: "What is limited."},
	}, together: something}
)

// divertWays are the keys of divert. A divert has exactly one of them.
var divertWays = []string{"body", "file", "upstream"}

// redisWays are the addresses of redis. It has exactly one of them.
var redisWays = []string{"url", "cluster", "sentinel"}
