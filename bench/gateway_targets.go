// SPDX-License-Identifier: MIT

package main

func gatewayTargets() []target {
	return []target{
		{"M3", "as a gateway: at least 97 % of the proxy's requests/s without Diana",
			compare(passedWorkload, requestRate, dianaServe, plainProxy, atLeast(0.97))},
		{"M3", "refusing: at least 95 % of a bare handler that answers 503",
			compare(refusedByServer, requestRate, dianaServe, bare503, atLeast(0.95))},
	}
}
