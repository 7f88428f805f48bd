// SPDX-License-Identifier: MIT

package config

import (
	"fmt"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/rule"
)

// The tables of keys define what a configuration can say. The reader and the schema use them.

// capitals are the characters of methods, and tokens those of header names, for a class of a regular
// expression.
const (
	capitals = "!#$%&'*+.^_`|~0-9A-Z\\-"
	tokens   = "a-z" + capitals

	pointerPattern = `(/([^/~]|~[01])*)+` // of JSON, not empty
)

// The forms of values that are not mappings.
var (
	nameForm      = textForm{longest: longestName, pattern: `^[^\x00-\x1f\x7f]+$`}
	patternForm   = textForm{longest: longestURL, pattern: `^((/([^ /?#{}]*|\{[^ /?#{}]+\}))+|[` + capitals + `]+ +(/([^/?#{}]*|\{[^/?#{}]+\}))+)$`}
	hostForm      = textForm{longest: longestAddress, pattern: `^(\[[^\] /@]+\]|[^\[\]: /@]+):[0-9]+$`}
	redisURLForm  = textForm{longest: longestAddress, pattern: `^[Rr][Ee][Dd][Ii][Ss][Ss]?://([^/?#]*@)?(\[[^/?#@]*\]|[^/?#@:\[\]]+)(:(0*[1-9][0-9]*)?)?(/*|/(0|[1-9][0-9]*))$`}
	upstreamForm  = textForm{longest: longestAddress, pattern: `^[Hh][Tt][Tt][Pp][Ss]?://(\[[^\[\]/?#@]+\]|[^/?#@:\[\]]+)(:[0-9]*)?(/[^?#]*)?$`}
	mediaForm     = textForm{longest: longestName, pattern: `^[` + tokens + `]+/[` + tokens + `]+([ \t]*;[ -~\t]*)?$`}
	answerForm    = textForm{longest: longestAnswer}
	networkForm   = textForm{longest: longestAddress, pattern: `^[0-9A-Fa-f:.]+(/[0-9]+)?$`}
	pathForm      = textForm{longest: longestPath}
	pemForm       = textForm{longest: longestPath, not: `-----BEGIN|[\n\x00]`}
	hostName      = textForm{longest: longestHost, pattern: `^([^ /:@*]+|[0-9A-Fa-f:.]+(%.+)?)$`}
	userForm      = textForm{longest: longestUser, pattern: `^[^\s]+$`}
	whoForm       = textForm{longest: longestWho}
	classForm     = textForm{longest: longestActor, pattern: `^(header|client):[` + tokens + `]+$`}
	classNameForm = nameForm
	zoneForm      = textForm{longest: longestZone, pattern: `^[0-9A-Za-z_+/-]+$`, otherwise: "UTC"}
	prefixForm    = textForm{longest: longestPrefix, pattern: `^[!-z|~]+$`, otherwise: "diana"}

	momentForm    = textForm{longest: longestMoment, pattern: `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$`}
	anyActor      = actorForm{textForm: textForm{longest: longestActor}, together: true}
	actorTogether = actorForm{textForm: textForm{longest: longestActor}, not: []string{"all"}}
	actorSource   = actorForm{textForm: textForm{longest: longestActor}, not: []string{"all", "account", "device"}}
	accountForm   = listForm{of: sources, item: actorSource, distinct: true, otherwise: []string{"header:X-Account-Id"}}
	deviceForm    = listForm{of: sources, item: actorSource, distinct: true, otherwise: []string{"header:X-Device-Id"}}
	hosts         = listForm{of: "host:port", item: hostForm, nonempty: true, distinct: true}
	divertStatus  = wholeForm{200, 599, 200}
	statusForm    = wholeForm{400, 599, 503}
	statusesForm  = listForm{of: "statuses", item: wholeForm{least: 100, most: 599}, nonempty: true, distinct: true}
	maxKeysForm   = wholeForm{1, maxMaxKeys, 1_000_000}
	headersForm   = truthForm{true}
	reserveForm   = reservation{wholeForm{1, bounds.MaxN, 1}, textForm{longest: longestActor, pattern: `^body:` + pointerPattern + `$`}}
	orForm        = wholeForm{1, bounds.MaxN, 1}
	weightForm    = numberForm{mostWeight, 1}
	waitForm      = durationForm{least: time.Millisecond, most: bounds.MaxWait}
	timeoutForm   = durationForm{time.Millisecond, 10 * time.Second, 50 * time.Millisecond}
	warmupForm    = durationForm{0, bounds.MaxWarmup, 0}
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
		{name: "rpu", form: wholeForm{least: 0, most: bounds.MaxWindowN}, required: true, about: "Requests per unit, at most 1,000,000,000 unless algo is W; 0 refuses all. With algo C: how many may be inside at once."},
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
		{name: "charge", form: statusesForm, about: "Statuses of answers: only requests that are answered with one of them count. Default: all count."},
		{name: "wait", form: waitForm, about: "TB, W, SW, SL, C: how long a request over the limit waits for its turn, or for a slot, before it is refused, 1ms to 10m. Default: not at all."},
		{name: "except", form: listForm{of: "values, addresses and networks", item: whoForm, distinct: true}, about: "Whom the rule does not judge: values of its actor, and addresses or networks of clients."},
		{name: "overrides", form: mapForm{whoForm, overrideKeys}, about: "Who has another limit: values of the rule's actor, and addresses or networks of clients."},
		{name: "class", form: classForm, with: "classes", about: "Header that names the class of a client, such as its plan: header:NAME for one that a trusted proxy writes, client:NAME for one that anyone may write."},
		{name: "classes", form: mapForm{classNameForm, classKeys}, with: "class", about: "The limits of classes, by their name. Who has another class, or none, has the rule's own."},
	}}

	costKeys = keys{of: "a cost", name: "cost", together: costTogether, list: []key{
		{name: "answer", form: textForm{longest: longestActor, pattern: `^(openai|anthropic|gemini|bytes|duration|/.*|(header|trailer):[` + tokens + `]+)$`}, required: true, about: "Where the true cost stands: openai, anthropic or gemini for the tokens that such an answer reports; a JSON pointer such as /usage/total_tokens; header:NAME or trailer:NAME; bytes; duration, in milliseconds."},
		{name: "reserve", form: reserveForm, about: "What the request is charged until the true cost is known: a number, or body:/POINTER for a whole number in the JSON body of the request."},
		{name: "or", form: orForm, about: "What is reserved if the body has no such number."},
		{name: "include_usage", form: truthForm{}, about: "openai: whether a request for a stream gets \"stream_options\": {\"include_usage\": true}. The client then receives one more event."},
		{name: "weights", form: weightKeys, about: "What tokens cost, by their kind. Default: each 1."},
	}}

	weightKeys = keys{of: "weights", name: "weights", list: []key{
		{name: "input", form: weightForm, about: "A token of the request."},
		{name: "output", form: weightForm, about: "A token of the answer."},
		{name: "cached", form: weightForm, about: "A token of the request that the provider had cached."},
	}}

	divertKeys = keys{of: "divert", name: "divert", together: divertTogether, list: []key{
		{name: "status", form: divertStatus, about: "Status of the answer, 200 to 599 but for 204, 205 and 304, which have no body."},
		{name: "type", form: mediaForm, about: "Media type of the answer. Default: text/plain; of a file by its name, else by what is in it."},
		{name: "body", form: answerForm, about: "Text of the answer."},
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
	}}

	remoteKeys = remoteForm{keys{of: "remote", name: "remote", together: remoteTogether, list: []key{
		{name: "url", form: sourceForm{textForm{longest: longestAddress}}, required: true, about: "Where the document is, such as etcd://HOST:PORT/KEY, consul://HOST:PORT/KEY, redis://HOST:PORT/DB/KEY, https://HOST/PATH or file:///PATH."},
		{name: "username", form: userForm, with: "password", about: "User of the centre. Default: none."},
		{name: "password", form: secretForm{}, about: "Password: text, env:NAME or file:PATH. Default: none."},
		{name: "token", form: secretForm{}, about: "Bearer token of http and https, ACL token of consul: text, env:NAME or file:PATH. Default: none."},
		{name: "tls", form: tlsKeys, about: "TLS to the centre; {}: by the system's authorities. Default: as the scheme says."},
		{name: "snapshot", form: pathForm, about: "File for the last good copy, which serves a start without the centre. Default: none."},
	}}}

	identityKeys = keys{of: "identity", name: "identity", list: []key{
		{name: "account", form: accountForm, about: "Where the actor account is found, tried in order; then the client's address."},
		{name: "device", form: deviceForm, about: "Where the actor device is found, tried in order; then the client's address."},
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
