(* The execution behind theorem (d)'s second part, event by event.

   FlashAttention-2 with one key at a time, for any visible pairs vis: the rows rs of a
   query block are loaded, their accumulators made; for each key in keys rs the key is
   loaded, absorbed by the rows that see it, and dropped; then the rows are finished and
   stored.  With softmax = true (scores and statistics are words) a word for the score
   is made and dropped at each pair, and m_i, l_i stay with the accumulators.

     witness_correct   it is valid, complete and normalised, if keys rs holds every
                       key that a row of rs sees and the words fit;
     witness_traffic   the words it moves.

   Source: Dao 2023 (arXiv 2307.08691), Algorithm 1. *)
From Coq Require Import Arith Lia List Permutation.
From iosim Require Import Tiles Lists Machine AttentionModel Phases.
Import ListNotations.

Section Witness.
Variables (softmax : bool) (d dv nq br : nat).
Variable vis : list (nat * nat).
Variable keys : list nat -> list nat.      (* the keys that a query block visits *)
Notation X := (attention true softmax softmax d dv vis).
Definition extra := if softmax then 1 else 0.

Definition accs i : list (word X) := a_words dv i ++ stats softmax i.
Definition kv j : list (word X) := k_words d j ++ v_words dv j.
Definition own (rs : list nat) : list (word X) := flat_map accs rs ++ flat_map (q_words d) rs.
Definition kv_own (j : nat) (rs : list nat) : list (word X) := kv j ++ own rs.
Definition out_words i : list (word X) := a_words dv i ++ (if softmax then [Wl i] else []).

Definition pair_events (j i : nat) : list (event X) :=
  map (@New X) (s_words softmax i j)
  ++ (if softmax then [@Do X (Score i j)] else [])
  ++ [@Do X (Absorb i j)]
  ++ map (@Drop X) (s_words softmax i j).

Definition sees_key (j i : nat) : bool := if in_dec pair_dec (i, j) vis then true else false.

Definition key_events (rs : list nat) (j : nat) : list (event X) :=
  map (@Load X) (kv j) ++ flat_map (pair_events j) (filter (sees_key j) rs)
  ++ map (@Drop X) (kv j).

Definition block_events (rs : list nat) : list (event X) :=
  map (@Load X) (flat_map (q_words d) rs)
  ++ map (@New X) (flat_map accs rs)
  ++ flat_map (key_events rs) (keys rs)
  ++ flat_map (fun i => [@Do X (Finish i)]) rs
  ++ map (@Store X) (flat_map out_words rs)
  ++ map (@Drop X) (own rs).

Definition witness : list (event X) := flat_map block_events (tiles nq br).

(* Words *)

Definition kept (w : word X) : Prop :=
  match (w : aword) with Wa _ _ | Wm _ | Wl _ => True | _ => False end.

Lemma in_accs w i : In w (accs i) -> kept w /\ row_of w = i.
Proof.
  unfold accs, a_words, stats. intros H. apply in_app_iff in H as [H | H].
  - in_words. now split.
  - destruct softmax; cbn in H; intuition (subst; cbn; auto).
Qed.

Lemma out_accs w i : In w (out_words i) -> In w (accs i).
Proof.
  unfold out_words, accs, stats. rewrite !in_app_iff. destruct softmax; cbn; tauto.
Qed.

Lemma in_q w i : In w (q_words d i) -> exists c, w = Wq i c.
Proof. unfold q_words. intros H. in_words. eauto. Qed.

Lemma in_kv w j : In w (kv j) -> exists c, w = Wk j c \/ w = Wv j c.
Proof. unfold kv, k_words, v_words. intros H. in_words; eauto. Qed.

Lemma in_s w i j : In w (s_words softmax i j) -> w = Ws i j.
Proof. unfold s_words. destruct softmax; cbn; intuition. Qed.

Lemma in_own w rs : In w (own rs) ->
  (kept w \/ exists i c, w = Wq i c) /\ In (row_of w) rs.
Proof.
  unfold own. rewrite in_app_iff, !in_flat_map. intros [(i & Hi & H) | (i & Hi & H)].
  - apply in_accs in H as [H <-]. auto.
  - apply in_q in H as (c & ->). eauto.
Qed.

Lemma accs_own w i rs : In i rs -> In w (accs i) -> In w (own rs).
Proof. intros. apply in_or_app. left. apply in_flat_map. eauto. Qed.

Lemma q_own w i rs : In i rs -> In w (q_words d i) -> In w (own rs).
Proof. intros. apply in_or_app. right. apply in_flat_map. eauto. Qed.

Lemma accs_NoDup rs : NoDup rs -> NoDup (flat_map accs rs).
Proof.
  intros H. apply (NoDup_flat_map row_of); trivial.
  - intros i _. unfold accs, a_words, stats. apply NoDup_app.
    + apply words_NoDup. congruence.
    + destruct softmax; repeat constructor; cbn; intuition congruence.
    + intros w Hw. in_words. destruct softmax; cbn; intuition congruence.
  - intros i w _ Hw. now apply in_accs in Hw.
Qed.

Lemma own_NoDup rs : NoDup rs -> NoDup (own rs).
Proof.
  intros H. apply NoDup_app; [ now apply accs_NoDup | | ].
  - apply (NoDup_flat_map row_of); trivial.
    + intros i _. apply words_NoDup. congruence.
    + intros i w _ Hw. now apply in_q in Hw as (c & ->).
  - intros w Hw Hw'. apply in_flat_map in Hw as (i & _ & Hw), Hw' as (i' & _ & Hw').
    apply in_accs in Hw as [Hw _]. apply in_q in Hw' as (c & ->). exact Hw.
Qed.

Lemma kv_own_NoDup j rs : NoDup rs -> NoDup (kv_own j rs).
Proof.
  intros H. apply NoDup_app; [ | now apply own_NoDup | ].
  - apply NoDup_app; try (apply words_NoDup; congruence).
    intros w Hw Hw'. unfold k_words, v_words in *. in_words.
  - intros w Hw Hw'. apply in_own in Hw' as [Hw' _].
    apply in_kv in Hw as (c & [-> | ->]); destruct Hw' as [[] | (? & ? & E)]; discriminate.
Qed.

Lemma s_kv_own_NoDup i j rs : NoDup rs -> NoDup (s_words softmax i j ++ kv_own j rs).
Proof.
  intros H. apply NoDup_app; [ | now apply kv_own_NoDup | ].
  - unfold s_words. destruct softmax; repeat constructor. cbn. tauto.
  - intros w Hw Hw'. apply in_s in Hw as ->. apply in_app_iff in Hw' as [Hw' | Hw'].
    + apply in_kv in Hw' as (c & [E | E]); discriminate.
    + apply in_own in Hw' as [[[] | (? & ? & E)] _]. discriminate.
Qed.

Lemma s_length i j : length (s_words softmax i j) = extra.
Proof. unfold s_words, extra. now destruct softmax. Qed.

Lemma kv_length j : length (kv j) = d + dv.
Proof. unfold kv, k_words, v_words. now rewrite app_length, !map_length, !seq_length. Qed.

Lemma q_length rs : length (flat_map (q_words d) rs) = length rs * d.
Proof. apply flat_map_length. intros. unfold q_words. now rewrite map_length, seq_length. Qed.

Lemma accs_length rs : length (flat_map accs rs) = length rs * (dv + 2 * extra).
Proof.
  apply flat_map_length. intros. unfold accs, a_words, stats, extra.
  rewrite app_length, map_length, seq_length. destruct softmax; cbn; lia.
Qed.

Lemma out_length rs : length (flat_map out_words rs) = length rs * (dv + extra).
Proof.
  apply flat_map_length. intros. unfold out_words, a_words, extra.
  rewrite app_length, map_length, seq_length. destruct softmax; cbn; lia.
Qed.

(* Its traffic *)

Lemma total_none {A} cost (f : A -> list (event X)) l :
  (forall a, total cost (f a) = 0) -> total cost (flat_map f l) = 0.
Proof. intros H. induction l; cbn; [ | rewrite total_app, H ]; auto. Qed.

Lemma pair_traffic j i : traffic (pair_events j i) = 0.
Proof. unfold traffic, pair_events, s_words. destruct softmax; reflexivity. Qed.

Lemma keys_traffic rs js : traffic (flat_map (key_events rs) js) = length js * (d + dv).
Proof.
  unfold traffic. induction js as [| j js IH]; cbn; [ reflexivity | ].
  unfold key_events at 1. rewrite !total_app, IH.
  rewrite (total_none _ _ (filter (sees_key j) rs) (pair_traffic j)).
  rewrite (total_map _ _ 1), (total_map _ _ 0) by reflexivity. rewrite kv_length. lia.
Qed.

Lemma block_traffic rs :
  traffic (block_events rs) = length rs * (d + dv + extra) + length (keys rs) * (d + dv).
Proof.
  pose proof (keys_traffic rs (keys rs)) as K.
  unfold traffic, block_events in *. rewrite !total_app, K.
  rewrite (total_none _ (fun i => [@Do X (Finish i)])) by reflexivity.
  rewrite !(total_map _ (@Load X) 1), !(total_map _ (@New X) 0),
    !(total_map _ (@Store X) 1), !(total_map _ (@Drop X) 0) by reflexivity.
  rewrite q_length, out_length. lia.
Qed.

Theorem witness_traffic : 0 < br ->
  traffic witness = nq * (d + dv) + nq * extra
    + sum (cdiv nq br) (fun b => length (keys (tile nq br b))) * (d + dv).
Proof.
  intros Hb. assert (E : forall Bs, traffic (flat_map block_events Bs)
    = length (concat Bs) * (d + dv + extra) + list_sum (map (fun rs => length (keys rs)) Bs) * (d + dv)).
  { induction Bs as [| rs Bs IH]; [ reflexivity | ].
    cbn [flat_map concat map list_sum fold_right]. fold (list_sum (map (fun rs => length (keys rs)) Bs)).
    unfold traffic in *. rewrite total_app, IH.
    pose proof (block_traffic rs) as B. unfold traffic in B. rewrite B, app_length. lia. }
  unfold witness. rewrite E, concat_tiles by exact Hb.
  unfold tiles. rewrite map_map, list_sum_seq, seq_length. lia.
Qed.
(* From here on the words fit. *)
Variable M : nat.
Hypothesis br_positive : 0 < br.
Hypothesis room : br * (d + dv + 2 * extra) + (d + dv) + extra <= M.

Lemma own_length rs : length rs <= br -> length (own rs) + (d + dv) + extra <= M.
Proof.
  intros H. unfold own. rewrite app_length, q_length, accs_length.
  assert (length rs * (d + dv + 2 * extra) <= br * (d + dv + 2 * extra))
    by (apply Nat.mul_le_mono_r; exact H). lia.
Qed.

(* The phases *)

Section Block.
Variable rs : list nat.
Hypothesis rs_NoDup : NoDup rs.
Hypothesis rs_length : length rs <= br.
Hypothesis rs_keys : forall i j, In i rs -> In (i, j) vis -> In j (keys rs).

Definition absorbed (j i : nat) (s : state X) : Prop :=
  forall w, In w (accs i) -> In (Absorb i j) (content s w).

Lemma absorbed_keeps j i (s s' : state X) : keeps kept s s' -> absorbed j i s -> absorbed j i s'.
Proof. intros [K _] H w Hw. apply K; [ now apply in_accs in Hw | auto ]. Qed.

Lemma pair_phase j i (s : state X) : In i rs -> Permutation (fast s) (kv_own j rs) ->
  phase kept M s (pair_events j i) (kv_own j rs) /\
  absorbed j i (run s (pair_events j i)).
Proof.
  intros Hi P. pose proof (own_length rs rs_length) as HL.
  set (F := kv_own j rs) in *. set (S := s_words softmax i j : list (word X)).
  assert (HF : length (S ++ F) <= M).
  { unfold S, F, kv_own. rewrite !app_length, s_length, kv_length. lia. }
  assert (N : NoDup (S ++ F)) by now apply s_kv_own_NoDup.
  assert (P1 : phase kept M s (map (@New X) S) (S ++ F)).
  { apply (phase_new (X := X)); trivial. intros w Hw. apply in_s in Hw as ->. cbn. auto. }
  set (s1 := run s (map (@New X) S)) in *.
  assert (P2 : phase kept M s1 (if softmax then [@Do X (Score i j)] else []) (S ++ F) /\
    (softmax = true -> In (Score i j)
      (content (run s1 (if softmax then [@Do X (Score i j)] else [])) (Ws i j)))).
  { destruct softmax eqn:E.
    - destruct (phase_do (X := attention true true true d dv vis)
        kept M (Score i j) s1 (S ++ F)) as (H1 & H2); trivial.
      + apply P1.
      + intros w Hw. change (In w (q_words d i ++ k_words d j ++ S)) in Hw.
        unfold F, kv_own, kv. rewrite !in_app_iff in *.
        destruct Hw as [Hw | [Hw | Hw]]; auto. right; right. apply (q_own w i); auto.
      + exact I.
      + split; [ exact H1 | ]. intros _. apply H2. cbn. now left.
    - split; [ | discriminate ].
      apply (phase_nil (X := attention true false false d dv vis)), P1. }
  destruct P2 as (P2 & R2).
  set (s2 := run s1 (if softmax then [@Do X (Score i j)] else [])) in *.
  destruct (phase_do (X := X) kept M (Absorb i j) s2 (S ++ F)) as (P3 & R3); trivial.
  { apply P2. }
  { cbn. intros w Hw. unfold F, kv_own, kv. rewrite !in_app_iff in *.
    destruct Hw as [[Hw | Hw] | [Hw | [Hw | [Hw | Hw]]]]; auto.
    - right; right. apply (q_own w i); auto.
    - right; right. apply (accs_own w i); trivial. apply in_or_app. auto.
    - right; right. apply (accs_own w i); trivial. apply in_or_app. auto. }
  assert (P4 : phase kept M (run s2 [@Do X (Absorb i j)]) (map (@Drop X) S) F).
  { apply (phase_drop (X := X)); trivial; [ apply P3 | ]. intros w Hw. apply in_s in Hw as ->. cbn. auto. }
  unfold pair_events. split.
  - apply (phase_app (X := X)) with (S ++ F); [ exact P1 | ].
    apply (phase_app (X := X)) with (S ++ F); [ exact P2 | ].
    now apply (phase_app (X := X)) with (S ++ F).
  - rewrite !run_app. fold S s1 s2.
    apply absorbed_keeps with (run s2 [@Do X (Absorb i j)]); [ apply P4 | ].
    intros w Hw. now apply R3.
Qed.

Definition all_absorbed (j : nat) (s : state X) :=
  forall i, In i rs -> In (i, j) vis -> absorbed j i s.

Lemma all_absorbed_keeps j (s s' : state X) : keeps kept s s' -> all_absorbed j s -> all_absorbed j s'.
Proof. intros K H i Hi Hv. apply absorbed_keeps with s; auto. Qed.

Lemma key_phase j (s : state X) : Permutation (fast s) (own rs) ->
  phase kept M s (key_events rs j) (own rs) /\ all_absorbed j (run s (key_events rs j)).
Proof.
  intros P. pose proof (own_length rs rs_length) as HL.
  assert (N : NoDup (kv_own j rs)) by now apply kv_own_NoDup.
  assert (HF : length (kv_own j rs) <= M) by (unfold kv_own; rewrite app_length, kv_length; lia).
  assert (P1 : phase kept M s (map (@Load X) (kv j)) (kv_own j rs)) by now apply (phase_load (X := X)).
  set (s1 := run s (map (@Load X) (kv j))) in *.
  destruct (phase_loop (X := X) kept M (pair_events j) (absorbed j) (fun _ => True) (kv_own j rs)
    (filter (sees_key j) rs)) with (s := s1) as (P2 & R2); trivial.
  { intros i a b K. now apply absorbed_keeps. }
  { intros i a Hi Ha _. apply filter_In in Hi as [Hi _]. now apply pair_phase. }
  { apply P1. }
  set (s2 := run s1 (flat_map (pair_events j) (filter (sees_key j) rs))) in *.
  assert (P3 : phase kept M s2 (map (@Drop X) (kv j)) (own rs)).
  { apply (phase_drop (X := X)); trivial; [ apply P2 | ].
    intros w Hw. apply in_kv in Hw as (c & [-> | ->]); cbn; auto. }
  unfold key_events. split.
  - apply (phase_app (X := X)) with (kv_own j rs); [ exact P1 | ].
    now apply (phase_app (X := X)) with (kv_own j rs).
  - rewrite !run_app. fold s1 s2. apply all_absorbed_keeps with s2; [ apply P3 | ].
    intros i Hi Hv. apply R2, filter_In. split; [ exact Hi | ].
    unfold sees_key. destruct (in_dec pair_dec (i, j) vis); [ reflexivity | contradiction ].
Qed.

(* What a finished row has saved. *)
Definition row_done (i : nat) (s : state X) : Prop :=
  (forall c, c < dv -> (forall j, In (i, j) vis -> In (Absorb i j) (saved s (Wa i c))) /\
                       In (Finish i) (saved s (Wa i c))) /\
  (softmax = true -> In (Finish i) (saved s (Wl i))).

Lemma block_valid (s : state X) : fast s = [] ->
  let s' := run s (block_events rs) in
  valid M s (block_events rs) /\ fast s' = [] /\
  (forall i, In i rs -> row_done i s') /\
  (forall w t, ~ In (row_of w) rs -> In t (saved s w) -> In t (saved s' w)).
Proof.
  intros P. pose proof (own_length rs rs_length) as HL.
  pose proof (own_NoDup rs rs_NoDup) as N.
  assert (HF : length (own rs) <= M) by lia.
  set (none := fun _ : word X => False).
  (* the queries and the new accumulators *)
  assert (P1 : phase none M s (map (@Load X) (flat_map (q_words d) rs)) (flat_map (q_words d) rs)).
  { rewrite <- (app_nil_r (flat_map (q_words d) rs)) at 2. apply (phase_load (X := X)); rewrite ?app_nil_r.
    - rewrite P. constructor.
    - unfold own in N. now apply NoDup_app_inv in N.
    - unfold own in HF. rewrite app_length in HF. lia. }
  set (s1 := run s (map (@Load X) (flat_map (q_words d) rs))) in *.
  assert (P2 : phase none M s1 (map (@New X) (flat_map accs rs)) (own rs)).
  { apply (phase_new (X := X)); trivial; [ apply P1 | ]. intros w Hw. split; [ | exact (fun H => H) ].
    apply in_flat_map in Hw as (i & _ & Hw). apply in_accs in Hw as [Hw _].
    destruct w; cbn in Hw; tauto. }
  set (s2 := run s1 (map (@New X) (flat_map accs rs))) in *.
  (* the keys *)
  destruct (phase_loop (X := X) kept M (key_events rs) all_absorbed (fun _ => True) (own rs) (keys rs))
    with (s := s2) as (P3 & R3); trivial.
  { intros j a b K. now apply all_absorbed_keeps. }
  { intros j a _ Ha _. now apply key_phase. }
  { apply P2. }
  set (s3 := run s2 (flat_map (key_events rs) (keys rs))) in *.
  (* the normalisation *)
  set (Inv := fun a : state X => forall j, In j (keys rs) -> all_absorbed j a).
  set (normal := fun i (a : state X) => forall w, In w (accs i) -> In (Finish i) (content a w)).
  destruct (phase_loop (X := X) kept M (fun i => [@Do X (Finish i)]) normal Inv (own rs) rs)
    with (s := s3) as (P4 & R4); trivial.
  { intros a b K H j Hj. apply all_absorbed_keeps with a; auto. }
  { intros i a b [K _] H w Hw. apply K; [ now apply in_accs in Hw | now apply H ]. }
  { intros i a Hi Ha HI. apply (phase_do (X := X)); trivial.
    - cbn. intros w Hw. now apply (accs_own w i).
    - cbn. intros j w Hj Hw. now apply (HI j (rs_keys i j Hi Hj) i Hi Hj). }
  { apply P3. }
  set (s4 := run s3 (flat_map (fun i => [@Do X (Finish i)]) rs)) in *.
  assert (R4' : Inv s4).
  { intros j Hj. apply all_absorbed_keeps with s3; [ apply P4 | auto ]. }
  (* the stores *)
  assert (E4 : Permutation (fast s4) (own rs)) by apply P4.
  destruct (store_all (X := X) M (flat_map out_words rs) s4) as (V5 & F5 & C5 & S5 & S5').
  { intros w Hw. apply in_flat_map in Hw as (i & Hi & Hw).
    apply (Permutation_in _ (Permutation_sym E4)).
    apply (accs_own w i); trivial. now apply out_accs. }
  { rewrite (Permutation_length E4). exact HF. }
  set (s5 := run s4 (map (@Store X) (flat_map out_words rs))) in *.
  assert (P6 : phase none M s5 (map (@Drop X) (own rs)) []).
  { apply (phase_drop (X := X)); rewrite ?app_nil_r; trivial.
    - rewrite F5. apply P4.
    - intros w _ H. exact H. }
  cbn zeta. unfold block_events. rewrite !run_app, !valid_app. fold s1 s2 s3 s4 s5.
  destruct P1 as (V1 & _ & _ & K1), P2 as (V2 & _ & _ & K2), P3 as (V3 & _ & _ & K3),
    P4 as (V4 & _ & _ & K4), P6 as (V6 & E6 & _ & K6).
  split; [ tauto | split; [ | split ] ].
  - now apply Permutation_nil, Permutation_sym.
  - intros i Hi. split.
    + intros c Hc.
      assert (Ha : In (Wa i c) (a_words dv i)) by (apply in_words; eauto).
      assert (Hw : In (Wa i c) (accs i)) by (apply in_or_app; auto).
      assert (Ho : In (Wa i c) (flat_map out_words rs))
        by (apply in_flat_map; exists i; split; trivial; apply in_or_app; auto).
      split.
      * intros j Hj. apply K6. rewrite S5 by exact Ho.
        apply (R4' j); trivial. now apply (rs_keys i).
      * apply K6. rewrite S5 by exact Ho. now apply R4.
    + intros Hs.
      assert (Hw : In (Wl i) (accs i)) by (apply in_or_app; right; rewrite Hs; cbn; auto).
      apply K6. rewrite S5; [ now apply R4 | ].
      apply in_flat_map. exists i. split; trivial. apply in_or_app. right. rewrite Hs. now left.
  - intros w t Hw Ht. apply K6. rewrite S5'; [ now apply K4, K3, K2, K1 | ].
    intros H. apply Hw. apply in_flat_map in H as (i & Hi & H).
    apply out_accs, in_accs in H as [_ <-]. exact Hi.
Qed.
End Block.

Lemma blocks_valid Bs : forall s : state X, NoDup (concat Bs) ->
  (forall rs, In rs Bs -> length rs <= br /\
     forall i j, In i rs -> In (i, j) vis -> In j (keys rs)) -> fast s = [] ->
  let s' := run s (flat_map block_events Bs) in
  valid M s (flat_map block_events Bs) /\ fast s' = [] /\
  (forall i, In i (concat Bs) -> row_done i s') /\
  (forall w t, ~ In (row_of w) (concat Bs) -> In t (saved s w) -> In t (saved s' w)).
Proof.
  induction Bs as [| rs Bs IH]; intros s N L P; cbn in *; [ tauto | ].
  rewrite run_app, valid_app.
  destruct (L rs (or_introl eq_refl)) as [Lr Kr].
  destruct (block_valid rs (proj1 (NoDup_app_inv _ _ N)) Lr Kr s P) as (V1 & F1 & D1 & S1).
  destruct (IH (run s (block_events rs)) (proj2 (NoDup_app_inv _ _ N))) as (V2 & F2 & D2 & S2); auto.
  split; [ tauto | split; [ exact F2 | split ] ].
  - intros i Hi. destruct (in_dec Nat.eq_dec i (concat Bs)) as [Hi' | Hi']; [ auto | ].
    apply in_app_iff in Hi as [Hi | Hi]; [ | tauto ].
    destruct (D1 i Hi) as [Da Dl]. split.
    + intros c Hc. destruct (Da c Hc) as [Da1 Da2]. split; [ intros j Hj | ]; apply S2; auto.
    + intros Hs. apply S2; auto.
  - intros w t Hw Ht. rewrite in_app_iff in Hw. apply S2; [ tauto | apply S1; tauto ].
Qed.

Hypothesis vis_rows : forall i j, In (i, j) vis -> i < nq.
Hypothesis vis_keys : forall b i j, b < cdiv nq br ->
  In i (tile nq br b) -> In (i, j) vis -> In j (keys (tile nq br b)).

Theorem witness_correct :
  valid M (init X) witness /\
  complete true softmax softmax d dv vis (run (init X) witness) /\
  finished true softmax softmax d dv vis nq (run (init X) witness).
Proof.
  destruct (blocks_valid (tiles nq br) (init X)) as (V & _ & D & _); trivial.
  - rewrite concat_tiles by exact br_positive. apply seq_NoDup.
  - intros rs H. unfold tiles in H. apply in_map_iff in H as (b & <- & Hb). split.
    + unfold tile. rewrite seq_length. apply rows_le.
    + intros i j. apply vis_keys. apply in_seq in Hb. lia.
  - rewrite concat_tiles in D by exact br_positive.
    split; [ exact V | split ].
    + intros i j c Hv Hc. apply (D i); trivial. apply in_seq.
      pose proof (vis_rows i j Hv). lia.
    + intros i Hi. destruct (D i) as [H Hl]; [ apply in_seq; lia | ].
      split; [ intros c Hc; now apply H | exact Hl ].
Qed.
End Witness.
