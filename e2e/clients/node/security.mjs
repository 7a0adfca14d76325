// How KafkaJS gets in, from the file that --security names; see e2e/clients/README.md.
import { readFileSync } from 'node:fs'

export function secured (a) {
  if (!a.security) return {}
  const s = JSON.parse(readFileSync(a.security))
  return {
    clientId: a.name,
    ...(s.ca ? { ssl: tls(s) } : {}),
    ...(s.mechanism ? { sasl: login(s), reauthenticationThreshold: 1000 } : {})
  }
}

function tls (s) {
  if (!s.certificate) return { ca: [readFileSync(s.ca)] }
  return { ca: [readFileSync(s.ca)], cert: readFileSync(s.certificate), key: readFileSync(s.key) }
}

function login (s) {
  const mechanism = s.mechanism.toLowerCase()
  if (mechanism !== 'oauthbearer') return { mechanism, username: s.user, password: s.password }
  return { mechanism, oauthBearerProvider: async () => ({ value: readFileSync(s.token_file, 'utf8').trim() }) }
}
