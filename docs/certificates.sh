#!/bin/sh
# Certificates for a cluster that has no other CA, its first user, and the settings of that user's clients:
#   certificates.sh FOLDER NAME...
# NAMEs are the host names and addresses at which clients reach the front doors. FOLDER gets a folder for each reader:
#   authority/                    the keys of two CAs, which can make any certificate: for nobody else
#   frontdoor/ produce/ fetch/ coordinator/ admin/    tls.crt, tls.key, ca.crt: between the services
#   frontdoor/ also clients.crt, clients.key          for listeners
#   admin/ also users                                 for KAFSCALE_BOOTSTRAP_USERS_FILE
#   console/                      ca.crt: the web console is a client, and has no user of its own
#   client/                       ca.crt and admin.properties, for clients
# Another run keeps the CAs and the user, and renews the certificates, which running services take over.
# DAYS is how long they last. OWNER (uid:gid) gets all folders but authority.
set -eu
umask 077
folder=$1
shift
: "${1:?name the host at which clients reach the front doors}"
roles="frontdoor produce fetch coordinator admin"

quietly() { # COMMAND...: what it says is shown if it fails
    said=$("$@" 2>&1) || { printf '%s\n' "$said" >&2; exit 1; }
}

authority() { # NAME
    key=$folder/authority/$1.key
    [ -s "$key" ] || quietly openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=KafScale, $1" \
        -addext keyUsage=critical,keyCertSign,cRLSign -keyout "$key" -out "$folder/authority/$1.crt"
}

issue() { # AUTHORITY ROLE FILE SUBJECT-ALTERNATIVE-NAMES
    to=$folder/$2/$3
    quietly openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$2" -keyout "$to.key.new" -out "$to.csr"
    printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\nauthorityKeyIdentifier=keyid\n' "$4" > "$to.ext"
    quietly openssl x509 -req -in "$to.csr" -CA "$folder/authority/$1.crt" -CAkey "$folder/authority/$1.key" \
        -set_serial "0x$(openssl rand -hex 16)" -days "${DAYS:-365}" -extfile "$to.ext" -out "$to.crt.new"
    mv "$to.key.new" "$to.key"
    mv "$to.crt.new" "$to.crt"
    rm "$to.csr" "$to.ext"
}

for name in authority client console $roles; do mkdir -p "$folder/$name"; done
authority internal
authority clients
for role in $roles; do
    issue internal "$role" tls "DNS:$role.kafscale.internal"
    cp "$folder/authority/internal.crt" "$folder/$role/ca.crt"
done

names=
for name in "$@"; do
    case $name in
        *:* | *[0-9].*[0-9].*[0-9].*[0-9]) names=$names,IP:$name ;;
        *) names=$names,DNS:$name ;;
    esac
done
issue clients frontdoor clients "${names#,}"

users=$folder/admin/users
[ -s "$users" ] || printf 'admin:%s\n' "$(openssl rand -hex 24)" > "$users"
cp "$folder/authority/clients.crt" "$folder/client/ca.crt"
cp "$folder/authority/clients.crt" "$folder/console/ca.crt"
cat > "$folder/client/admin.properties" <<EOF
security.protocol=SASL_SSL
ssl.truststore.type=PEM
ssl.truststore.certificates=$(awk '{ printf "%s\\n", $0 }' "$folder/client/ca.crt")
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="$(cut -d: -f2 "$users")";
EOF
for name in client console $roles; do [ -z "${OWNER:-}" ] || chown -R "$OWNER" "$folder/$name"; done
